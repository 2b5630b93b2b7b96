module goids

go 1.18
