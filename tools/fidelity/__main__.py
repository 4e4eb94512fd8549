import sys,time
from .suite import run
t=time.time()
v,u=run(sys.argv[1], 2048, sys.argv[2] if len(sys.argv)>2 else '')
print(time.time()-t, len(v), 'unknown', len(u), [x.line for x in u][:60])
for x in v:
    if x.wrong: print(x.trial.kernel, x.trial.line, x.wrong, x.example[:420])
