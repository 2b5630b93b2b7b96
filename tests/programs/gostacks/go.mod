module gostacks

go 1.18
