#include <verge/version.h>

namespace verge {

const char* version() noexcept { return "0.1.0"; }

}  // namespace verge
