module others

go 1.19
