// x times the normal distribution's integral up to it, as near as results of scalar_t need it.
#pragma once

PORTKERN_INLINE vec gelu(vec x) {
  // Below -15 the product is less than every float, but -infinity * 0 would be NaN.
  return max(splat(-15.0f), x) * (sizeof(scalar_t) == 2 ? rough_normal_cdf(x) : normal_cdf(x));
}
