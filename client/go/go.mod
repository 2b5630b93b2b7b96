module tracerd/client/go

go 1.22
