module load

go 1.25

require tracerd/client/go v0.0.0

replace tracerd/client/go => ../../../client/go
