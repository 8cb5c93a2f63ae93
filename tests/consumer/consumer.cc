// A user's program, built against the installed library by check.sh: it prints the version it runs
// on.
#include <verge/version.h>

#include <iostream>

int main() { std::cout << verge::version() << '\n'; }
