module example.com/embed

go 1.26.0

require github.com/milena-project/milena v0.0.0
