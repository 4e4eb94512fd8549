FROM $base
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/* \
    && useradd -m agent && mkdir /workdir && chown agent /workdir
$copy
WORKDIR /workdir
