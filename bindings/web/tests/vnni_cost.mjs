/**
 * Makes copies of both packages whose products of four bytes cost what they do with `vpdpbusd`, on a processor without it:
 * `node vnni_cost.mjs PACKAGE WORK OUT` writes OUT/package and OUT/work for `bench.mjs`.
 *
 * `i32x4.relaxed_dot_i8x16_i7x16_add_s` is one instruction with AVX-VNNI or AVX-512 VNNI, and three otherwise; a relaxed
 * multiply-add of floats has the same operands and takes one with any FMA. The copies have it in place of each product, and
 * choose the kernels for VNNI. Their results are wrong: only their times mean anything.
 */
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const DOT = Buffer.from([0xfd, 0x93, 0x02]);
const MULTIPLY_ADD = Buffer.from([0xfd, 0x85, 0x02]);

const [packageFolder, work, out] = process.argv.slice(2).map((path) => resolve(path));
if (out === undefined) {
  console.error('usage: vnni_cost.mjs PACKAGE WORK OUT');
  process.exit(2);
}
rmSync(out, { recursive: true, force: true });
cpSync(packageFolder, join(out, 'package'), { recursive: true, dereference: true });
for (const name of ['playwright-core', '@litertjs']) {
  cpSync(join(work, 'node_modules', name), join(out, 'work/node_modules', name), { recursive: true, dereference: true });
}

/** Returns the offsets of products. */
function products(module) {
  const found = [];
  for (let at = module.indexOf(DOT); at >= 0; at = module.indexOf(DOT, at + 1)) found.push(at);
  return found;
}

/** Writes `bytes` over the first occurrence of `before` after `at`, within `reach` bytes. */
function replace(module, at, reach, before, bytes) {
  const found = module.subarray(at, at + reach).indexOf(Buffer.from(before));
  if (found < 0) throw new Error(`no probe at ${at}: another version of a package?`);
  Buffer.from(bytes).copy(module, at + found);
}

function rewrite(path, choose) {
  const module = readFileSync(path);
  const all = products(module);
  const kept = choose(module, all);
  for (const at of all.filter((at) => !kept.includes(at))) MULTIPLY_ADD.copy(module, at);
  writeFileSync(path, module);
  console.log(`${path}: ${all.length - kept.length} products`);
}

// The probe calls `memcmp` for 16 bytes after its product, and tests that the result is zero: it becomes a constant.
rewrite(join(out, 'package/wasm/delegraph_cpu_relaxed_bg.wasm'), (module, all) => {
  const length = Buffer.from([0x41, 0x10, 0x10]);
  const probes = all.filter((at) => module.subarray(at, at + 32).includes(length));
  if (probes.length !== 1) throw new Error(`${probes.length} probes in delegraph`);
  replace(module, probes[0], 80, [0x20, 0x01, 0x45], [0x41, 0x01, 0x01]);
  return [];
});

// The probe has four products; `select` takes the flag for unsigned products if nothing differs: `v128.or`, `v128.any_true`.
const litert = join(out, 'work/node_modules/@litertjs/core/wasm');
for (const name of ['litert_wasm_internal.wasm', 'litert_wasm_jspi_internal.wasm']) {
  rewrite(join(litert, name), (module, all) => {
    const probe = all.slice(0, 4);
    replace(module, probe[3], 100, [0xfd, 0x50, 0xfd, 0x53, 0x1b], [0x1a, 0x1a, 0x41, 0x00]);
    return probe;
  });
}
