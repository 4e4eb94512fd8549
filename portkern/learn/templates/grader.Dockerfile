FROM $base
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir "portkern[hip,cuda,opencl]==$portkern"
COPY . /tests
