#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <cstdint>
#define FN(NAME, EXPR) struct NAME { static __device__ float run(float x) { return EXPR; } };
__device__ float ex2(float x){float r; asm("ex2.approx.f32 %0,%1;":"=f"(r):"f"(x)); return r;}
__device__ float ex2z(float x){float r; asm("ex2.approx.ftz.f32 %0,%1;":"=f"(r):"f"(x)); return r;}
__device__ float lg2(float x){float r; asm("lg2.approx.f32 %0,%1;":"=f"(r):"f"(x)); return r;}
__device__ float sn(float x){float r; asm("sin.approx.f32 %0,%1;":"=f"(r):"f"(x)); return r;}
__device__ float cs(float x){float r; asm("cos.approx.f32 %0,%1;":"=f"(r):"f"(x)); return r;}
__device__ float rc(float x){float r; asm("rcp.approx.f32 %0,%1;":"=f"(r):"f"(x)); return r;}
__device__ float rs(float x){float r; asm("rsqrt.approx.f32 %0,%1;":"=f"(r):"f"(x)); return r;}
__device__ float th(float x){float r; asm("tanh.approx.f32 %0,%1;":"=f"(r):"f"(x)); return r;}
FN(Ex2, ex2(x)) FN(Lg2, lg2(x)) FN(Sin, sn(x)) FN(Cos, cs(x)) FN(Rcp, rc(x)) FN(Rsq, rs(x)) FN(Tanh, th(x))
FN(IExp, __expf(x)) FN(ILog, __logf(x)) FN(ISin, __sinf(x)) FN(ILog10, __log10f(x)) FN(IExp10, __exp10f(x)) FN(ITan, __tanf(x))
FN(MExp, ex2(x*1.442695041f)) FN(MExpZ, ex2z(x*1.442695041f)) FN(MLog, lg2(x)*0.693147181f) FN(MLog10, lg2(x)*0.301029996f) FN(MExp10, ex2(x*3.321928094f)) FN(MTan, __fdividef(__sinf(x),__cosf(x))) FN(MTan2, __sinf(x)*rc(__cosf(x)))
struct S { double abs, rel, ulp; unsigned long long diff; int quantum; float at; };
template <class A> __global__ void eval(const float* x, float* y, size_t n){ size_t k=blockIdx.x*(size_t)blockDim.x+threadIdx.x; if(k<n) y[k]=A::run(x[k]); }
template <class A, class B> __global__ void same(uint32_t lo, uint32_t hi, unsigned long long* diff, uint32_t* where){
  for (uint64_t k=lo+blockIdx.x*(uint64_t)blockDim.x+threadIdx.x;k<hi;k+=(uint64_t)gridDim.x*blockDim.x){ float x=__uint_as_float((uint32_t)k); float a=A::run(x), b=B::run(x);
   if(__float_as_uint(a)!=__float_as_uint(b) && !(a!=a && b!=b)){ if (atomicAdd(diff,1ull)<1) *where=(uint32_t)k; } } }
template <class A, class B> void compare(const char* name, uint32_t lo, uint32_t hi){ unsigned long long* d; uint32_t* w; cudaMallocManaged(&d,8); cudaMallocManaged(&w,4); *d=0;*w=0; same<A,B><<<1024,256>>>(lo,hi,d,w); cudaDeviceSynchronize(); float f; memcpy(&f,w,4); printf("%s [%08x,%08x): %llu differ, e.g. %g (%08x)\n",name,lo,hi,*d,f,*w); }
__global__ void maxes(uint32_t lo, uint32_t hi, int which, unsigned long long* out){ // abs, rel as double bits
  for (uint64_t k=lo+blockIdx.x*(uint64_t)blockDim.x+threadIdx.x;k<hi;k+=(uint64_t)gridDim.x*blockDim.x){ float x=__uint_as_float((uint32_t)k); double y,r;
   switch(which){case 0:y=ex2(x);r=exp2((double)x);break;case 1:y=lg2(x);r=log2((double)x);break;case 2:y=__sinf(x);r=sin((double)x);break;case 3:y=__cosf(x);r=cos((double)x);break;case 4:y=rc(x);r=1/(double)x;break;case 5:y=rs(x);r=1/sqrt((double)x);break;case 6:y=th(x);r=tanh((double)x);break;
   case 7:{float t=x*0.15915494f; y=__sinf(x); r=sinpi(2*(double)t);break;} case 8:{float t=x*0.15915494f; y=__cosf(x); r=cospi(2*(double)t);break;} case 9:y=__tanf(x);r=tan((double)x);break; case 10:y=__expf(x);r=exp((double)x);break; case 11:y=__logf(x);r=log((double)x);break;}
   double a=fabs(y-r); int e; frexp(r,&e); double u=a/ldexp(1.0,max(e-24,-149)); double q=r!=0?a/fabs(r):0;
   if (!(a>=0)||isinf(a)) {atomicAdd(out+4,1ull);continue;}
   atomicMax(out,__double_as_longlong(a)); atomicMax(out+1,__double_as_longlong(q)); atomicMax(out+2,__double_as_longlong(u));
   if (y!=0){int ey; double m=frexp(y,&ey); unsigned long long im=(unsigned long long)(fabs(m)*(1<<24)); int low=ey-24+(__ffsll(im)-1); atomicMax(out+3,(unsigned long long)(1000-low)); }
  } }
void stat(const char* name,int which,uint32_t lo,uint32_t hi){ unsigned long long* o; cudaMallocManaged(&o,40); memset(o,0,40); maxes<<<1024,256>>>(lo,hi,which,o); cudaDeviceSynchronize(); double v[3]; memcpy(v,o,24); printf("%s [%08x,%08x): abs 2^%.3f rel 2^%.3f ulp %.3f quantum 2^%lld odd %llu\n",name,lo,hi,log2(v[0]),log2(v[1]),v[2],1000-(long long)o[3],o[4]); }
template <class A> void dump(FILE* f, double lo, double hi){ size_t n=1<<18; float *x,*y; cudaMallocManaged(&x,n*4); cudaMallocManaged(&y,n*4); for(size_t k=0;k<n;++k) x[k]=(float)(lo+(hi-lo)*k/n); eval<A><<<n/256,256>>>(x,y,n); cudaDeviceSynchronize(); fwrite(x,4,n,f); fwrite(y,4,n,f);} 
int main(int,char**v){ uint32_t pi=0x40490fdb, top=0x7f800000;
 compare<IExp,MExp>("expf=ex2(x*l2e)",0,top); compare<IExp,MExp>("expf neg",0x80000000u,0xff800000u); compare<IExp,MExpZ>("expf=ex2z neg",0x80000000u,0xff800000u); compare<IExp10,MExp10>("exp10f",0,top); compare<IExp10,MExp10>("exp10f neg",0x80000000u,0xff800000u);
 compare<ILog,MLog>("logf",0,top); compare<ILog10,MLog10>("log10f",0,top); compare<ITan,MTan>("tan=fdividef",0,top); compare<ITan,MTan2>("tan=sin*rcp",0,top); compare<ISin,Sin>("sin",0,top);
 stat("ex2 [0,1)",0,0,0x3f800000); stat("ex2 [1,128)",0,0x3f800000,0x43000000); stat("ex2 (-126,0]",0,0x80000000u,0xc2fc0000u); stat("ex2 subnormal results",0,0xc2fc0000u,0xc3150000u);
 stat("lg2 [.5,2)",1,0x3f000000,0x40000000); stat("lg2 near 1: [1,1+2^-8)",1,0x3f800001,0x3f808000); stat("lg2 [1,1+2^-16]",1,0x3f800001,0x3f800080); stat("lg2 [1-2^-9,1)",1,0x3f7f8000,0x3f800000); stat("lg2 >2",1,0x40000000,top); stat("lg2 normal <.5",1,0x00800000,0x3f000000); stat("lg2 subnormal",1,1,0x00800000);
 stat("sin [0,pi]",2,0,pi); stat("cos [0,pi]",3,0,pi); stat("sin [0,2^-10]",2,0,0x3a800000); stat("sin (pi,48039]",2,pi,0x473ba700); stat("sin of product [0,pi]",7,0,pi); stat("sin of product (pi,1e4]",7,pi,0x461c4000); stat("cos of product [0,pi]",8,0,pi); stat("sin of product 1e4..1e9",7,0x461c4000,0x4e6e6b28);
 stat("sin product tiny",7,0,0x38000000); stat("rcp [1,2)",4,0x3f800000,0x40000000); stat("rcp normal",4,0x00800000,0x7e800000); stat("rcp >2^126",4,0x7e800001,top); stat("rcp subnormal",4,0x00200001,0x00800000); stat("rsqrt",5,0x00800000,top); stat("rsqrt sub",5,1,0x00800000); stat("tanh",6,0,0x41200000); stat("tanh small",6,0,0x3a000000); stat("tan [0,pi/2)",9,0,0x3fc90fdb); stat("expf [0,88)",10,0,0x42b00000); stat("expf (-87,0]",10,0x80000000u,0xc2ae0000u); stat("expf sub",10,0xc2b00000u,0xc2ce0000u); stat("logf [.5,2]",11,0x3f000000,0x40000001); stat("logf >2",11,0x40000000,top);
 FILE* f=fopen(v[1],"wb"); dump<Ex2>(f,0,1); dump<Lg2>(f,0.5,2); dump<Lg2>(f,1-0x1p-9,1+0x1p-8); dump<ISin>(f,0,7); dump<ISin>(f,0,0.01); dump<Rcp>(f,1,2); dump<Tanh>(f,0,5); fclose(f); }
