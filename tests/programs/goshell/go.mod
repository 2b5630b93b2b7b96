module goshell

go 1.22

require (
	tracerd/client/go v0.0.0
	vendored/tracerd v0.0.0
)

replace (
	tracerd/client/go => ../../../client/go
	vendored/tracerd => ../../../vendored
)
