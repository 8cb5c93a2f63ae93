module verge/bench/go

go 1.19
