#!/bin/sh
# Installs npm packages that build and test the web package: `scripts/web_packages.sh FOLDER NAME…`, in the versions of
# bindings/web/js/package.json. Needs no network if they are installed.
set -eu

cd "$(dirname "$0")/.."
folder=$1
mkdir -p "$folder"
missing=$(node -e '
    const { devDependencies } = require("./bindings/web/js/package.json");
    const [folder, ...names] = process.argv.slice(1);
    const installed = (name) => {
        try {
            return require(require("path").resolve(folder, "node_modules", name, "package.json")).version;
        } catch {
            return undefined;
        }
    };
    const missing = names.filter((name) => installed(name) !== devDependencies[name]);
    console.log(missing.map((name) => `${name}@${devDependencies[name]}`).join(" "));
' "$@")
[ -n "$missing" ] || exit 0
[ -e "$folder/package.json" ] || echo '{"private": true}' >"$folder/package.json"
# shellcheck disable=SC2086 # A list of packages.
npm install --silent --no-audit --no-fund --prefix "$folder" $missing
