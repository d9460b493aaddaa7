#!/bin/sh
# Builds the kit for GPUs: `scripts/build_gpu_kit.sh FOLDER`.
#
# The folder holds stripped programs, packed models and `run.sh`; it runs on any x86-64 Linux machine with a Vulkan
# driver and a C library that is not older than this machine's. Models that are not in the cache are skipped with a
# message.
set -eu

cd "$(dirname "$0")/.."
CARGO=${CARGO:-cargo}
kit=${1:?a folder}
cache=${DELEGRAPH_CACHE:-$HOME/.cache/delegraph}
most=55000000

# Only an earlier kit is replaced; other folders are kept.
if [ -e "$kit" ] && [ ! -e "$kit/bin/gpu_kit" ] && [ -n "$(ls -A "$kit")" ]; then
    echo "gpu-kit: $kit is not an earlier kit" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # a list of words
"$CARGO" build ${CARGO_FLAGS:-} --profile kit -p delegraph -p delegraph-shaders -p delegraph-conformance \
    --bin delegraph --example gpu_kit --test results --message-format=json-render-diagnostics >"$log"

rm -rf "$kit"
mkdir -p "$kit/bin" "$kit/models"
# Copies the program of the target $1 to $2.
program() {
    path=$(grep "\"name\":\"$1\"" "$log" | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
    [ -n "$path" ] || { echo "gpu-kit: cargo built no $1" >&2; exit 1; }
    cp "$path" "$kit/bin/$2"
}
program delegraph delegraph
program gpu_kit gpu_kit
program results shader-tests

for model in assets/digits/*.tflite; do
    gzip -9 -n -c "$model" >"$kit/models/$(basename "$model").gz"
done
for model in basic_pitch_nmp deeplabv3 efficientnet_lite0_int8 face_detection_short_range hand_landmark_full iris_landmark okay_nabu \
    palm_detection_full pose_detection selfie_segmentation; do
    if [ -e "$cache/models/$model.tflite" ]; then
        gzip -9 -n -c "$cache/models/$model.tflite" >"$kit/models/$model.tflite.gz"
    else
        echo "gpu-kit: left out: $model.tflite is not in the cache (make models)"
    fi
done

cat >"$kit/run.sh" <<'END'
#!/bin/sh
# Checks and measures a GPU in less than ten minutes: `run.sh OUT [--adapter NAME] [--seconds N]`.
# OUT/kit.json and OUT/kit.html are the results; nothing is written elsewhere.
set -eu
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "run.sh: needs Linux on x86-64; this is $(uname -sm)" >&2; exit 1; }
kit=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
    "" | -*) ;;
    *)
        mkdir -p "$1/models"
        for model in "$kit"/models/*.gz; do
            gzip -d -c "$model" >"$1/models/$(basename "$model" .gz)"
        done
        ;;
esac
exec "$kit/bin/gpu_kit" "$@"
END
chmod +x "$kit/run.sh"

size=$(du -sb "$kit" | cut -f 1)
echo "gpu-kit: $kit: $size bytes"
[ "$size" -le "$most" ] || { echo "gpu-kit: more than $most bytes" >&2; exit 1; }
