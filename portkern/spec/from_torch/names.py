"""Names that C and Python both take, from those that a file has."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

#: Characters of a name, which files are called by too.
MOST_LENGTH = 150

#: Words of C, C++, CUDA, HIP and OpenCL that a file may well use as a name.
_RESERVED = frozenset(
    """
    alignas alignof and asm auto bool break case catch char class compl const constexpr continue
    decltype default delete do double dynamic_cast else enum explicit export extern false float
    for friend goto half if inline int kernel long mutable namespace new noexcept not nullptr
    operator or private protected public register reinterpret_cast restrict return short signed
    sizeof static static_assert static_cast struct switch template this thread_local throw true
    try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
    global local constant scalar_t stream main int8_t int16_t int32_t int64_t uint8_t max min
    out
    """.split()
)

#: Functions that headers of C, POSIX and CUDA declare. Whoever names a file after one of torch's
#: functions meets them, and a kernel of that name is a second declaration.
_DECLARED = frozenset(
    """
    abort abs access acos acosh alarm asin asinh assert atan atan2 atanh atexit atof atoi atol bind
    bsearch cabs calloc cbrt ceil chdir clock clone close connect copysign cos cosh cospi ctime
    cyl_bessel_i0 cyl_bessel_i1 daemon difftime div dup encrypt erand48 erf erfc erfcinv erfcx
    erfinv exit exp exp10 exp2 expm1 fabs fclose fdim ffs fgetc floor fma fmax fmin fmod fopen fork
    free frexp fsync gamma getenv getline hypot ilogb index ioctl isalnum isalpha isblank iscntrl
    isdigit isfinite isgraph isinf islower isnan isnormal isprint ispunct isspace isupper j0 j1 jn
    kill labs ldexp ldiv lgamma link listen llabs llrint llround localtime lockf log log10 log1p
    log2 logb longjmp lrint lround lseek malloc mblen memchr memcmp memcpy memmove memset mktime
    modf nan nearbyint nextafter nexttoward nice norm norm3d norm4d normcdf normcdfinv open pause
    perror pipe poll pow pow10 printf putc putenv puts qsort raise rand random rcbrt read
    realloc recv remainder remove remquo rename rewind rhypot rindex rint rnorm rnorm3d
    rnorm4d round rsqrt scalb scalbln scalbn scanf select send setjmp signal signbit significand
    sin sincos sincospi sinh sinpi sleep socket sqrt srand std strcat strchr strcmp strcpy strlen
    strspn strstr strtok swab symlink sync syscall system tan tanh tgamma time times tmpfile
    tolower toupper trunc truncate ungetc unlink usleep wait write y0 y1 yn
    """.split()
)


def identifier(text: str, *, taken: Iterable[str] = ()) -> str:
    """``text`` as a name: no other characters, no reserved word, none of ``taken``."""
    plain = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")[:MOST_LENGTH] or "x"
    plain = f"n{plain}" if plain[0].isdigit() else plain
    plain = f"{plain}_" if plain in _RESERVED or keyword.iskeyword(plain) else plain
    known = set(taken)
    if plain not in known:
        return plain
    number = 2
    while f"{plain}_{number}" in known:
        number += 1
    return f"{plain}_{number}"


def is_identifier(text: str) -> bool:
    """Whether a C function may have a parameter of this name."""
    if len(text) > MOST_LENGTH or not re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII):
        return False
    return text not in _RESERVED and not keyword.iskeyword(text)


def operator_name(stem: str) -> str:
    """``24_LogSoftmax`` is ``log_softmax``, and ``22_Tanh`` is ``tanh_``: a C function is named so,
    beside those that headers declare."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", stem)
    plain = re.sub(r"\W+", "_", words, flags=re.ASCII).strip("_").lower()
    plain = re.sub(r"_+", "_", re.sub(r"^[\d_]+", "", plain)) or f"op_{plain}"
    name = identifier(plain)
    return f"{name}_" if name in _DECLARED else name
