// The least program there is: it links and says which verge it runs on.

#include <verge/version.h>

#include <iostream>

int main() { std::cout << "verge " << verge::version() << '\n'; }
