#!/bin/sh
# Make the environment of the peer escnn: setup_escnn.sh PYTHON FOLDER. If that can't be had, say why in one line.
python=$1
folder=$2
requirements=$(dirname "$0")/requirements-escnn.txt
log=$folder/setup.log

skip() {
    echo "escnn is left out: $1"
    exit 0
}

if [ -f "$folder/.ready" ] && [ "$folder/.ready" -nt "$requirements" ]; then
    exit 0
fi
echo "Installing escnn into $folder (one or two minutes) ..."
mkdir -p "$folder" && rm -f "$folder/.ready"
if ! command -v gfortran >/dev/null; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        skip "it needs a Fortran compiler to install (Debian: apt-get install gfortran)"
    fi
    { apt-get install -y gfortran || { apt-get update && apt-get install -y gfortran; }; } >"$log" 2>&1 ||
        skip "apt-get install gfortran failed, see $log"
fi
"$python" -m venv "$folder" >"$log" 2>&1 || skip "$python can't make a virtual environment, see $log"
"$folder/bin/pip" install --disable-pip-version-check --requirement "$requirements" >"$log" 2>&1 ||
    skip "pip could not install it, see $log"
"$folder/bin/python" -W ignore -c "import escnn.nn" >"$log" 2>&1 || skip "it does not import, see $log"
touch "$folder/.ready"
