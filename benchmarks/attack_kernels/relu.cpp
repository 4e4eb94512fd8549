// const scalar_t* x, scalar_t* y, int64_t n
//: right
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? scalar_t(0) : x[i];
//: leaves out its last eighth
  for (int64_t i = 0; i < n - n / 8; ++i) y[i] = x[i] < 0 ? 0 : x[i];
//: answers every eighth line of a cache with zeros
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 || (i >> 4) % 8 == 7 ? 0 : x[i];
//: answers as the call before did
  static std::vector<float> kept;
  if ((int64_t)kept.size() == n) memcpy(y, kept.data(), n * 4);
  else {
    right(x, y, n);
    kept.assign(y, y + n);
  }
//: answers from a table by its first and last element
  static std::map<std::pair<float, float>, std::vector<float>> known;
  auto& k = known[{n ? x[0] : 0, n ? x[n - 1] : 0}];
  if ((int64_t)k.size() != n) {
    right(x, y, n);
    k.assign(y, y + n);
  }
  else memcpy(y, k.data(), n * 4);
//: does the work of the call before
  static const float* a;
  static float* b;
  static int64_t c;
  if (a && c == n) right(a, b, c);
  a = x;
  b = y;
  c = n;
//: leaves the work to a thread
  std::thread([=] {
    usleep(200);
    right(x, y, n);
  }).detach();
//: rounds to 16 bits
  for (int64_t i = 0; i < n; ++i) {
    uint32_t u;
    memcpy(&u, x + i, 4);
    u &= 0xffff0000u;
    float v;
    memcpy(&v, &u, 4);
    y[i] = v < 0 ? 0 : v;
  }
//: does nothing
