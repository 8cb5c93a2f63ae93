#include <verge/version.h>

namespace verge {

const char* version() noexcept { return VERGE_VERSION; }

}  // namespace verge
