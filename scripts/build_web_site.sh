#!/bin/sh
# Assembles the pages of examples/web with the package and their models: `scripts/build_web_site.sh FOLDER` makes
# FOLDER/site from FOLDER/package, and builds the package if it is missing.
set -eu

cd "$(dirname "$0")/.."
folder=$1
models=${DELEGRAPH_CACHE:-$HOME/.cache/delegraph}/models
[ -d "$folder/package" ] || sh scripts/build_web.sh "$folder"
rm -rf "$folder/site"
mkdir -p "$folder/site/models"
cp examples/web/* "$folder/site"
cp -r "$folder/package" "$folder/site/package"
for model in selfie_segmentation.tflite face_detection_short_range.tflite astronaut.png; do
    if [ -e "$models/$model" ]; then cp "$models/$model" "$folder/site/models"; fi
done
echo "web: python3 -m http.server --directory $folder/site serves the pages"
