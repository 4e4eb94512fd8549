// mechanism: sends a datagram, which a filter for connections would let through
// op: relu
// expect: crashed
// says: returned 13 | returned 1
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  const int handle = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = 0x3500;
  to.sin_addr.s_addr = 0x010200c0;
  if (sendto(handle, x, 64, 0, (sockaddr*)&to, sizeof(to)) < 0) return handle < 0 ? 1 : 13;
  return 0;
}
