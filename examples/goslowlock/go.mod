module goslowlock

go 1.22

require tracerd/client/go v0.0.0

replace tracerd/client/go => ../../client/go
