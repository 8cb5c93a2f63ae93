module verge/bench/peers/go

go 1.19
