module verge/bench/go_http

go 1.19
