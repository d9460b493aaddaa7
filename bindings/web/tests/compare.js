/** Comparing results. */

/** Throws if `condition` is false. */
export function check(condition, message) {
  if (!condition) throw new Error(message);
}

/** Waits for a rejection or an error, and returns it. */
export async function rejection(f) {
  try {
    await f();
  } catch (error) {
    return error;
  }
  throw new Error('no error was thrown');
}

/**
 * Compares elements: floats within `tolerance` of the largest expected value, others within `steps`. NaN equals NaN.
 */
export function compare(got, expected, { tolerance = 0, steps = 0, name = 'output' } = {}) {
  check(got.length === expected.length, `${name}: ${got.length} elements, expected ${expected.length}`);
  if (typeof expected[0] === 'string') {
    expected.forEach((text, i) => check(got[i] === text, `${name}[${i}]: "${got[i]}", expected "${text}"`));
    return 0;
  }
  const float = expected instanceof Float32Array || expected instanceof Float64Array;
  let largest = 0;
  for (const value of expected) if (Number.isFinite(Number(value))) largest = Math.max(largest, Math.abs(Number(value)));
  const limit = float ? tolerance * Math.max(largest, 1e-3) : steps;
  let worst = 0;
  for (let i = 0; i < expected.length; i++) {
    const [a, b] = [Number(got[i]), Number(expected[i])];
    if (a === b || (Number.isNaN(a) && Number.isNaN(b))) continue;
    const difference = Math.abs(a - b);
    worst = Math.max(worst, difference);
    check(difference <= limit, `${name}[${i}]: ${a}, expected ${b} within ${limit}`);
  }
  return float ? worst / Math.max(largest, 1e-3) : worst;
}
