/** The end of models that a page no longer has. */

/** Objects whose end shows that a collection ended. They are old, as collections of young objects come first. */
const objects = [];
let ended;
const registry = new FinalizationRegistry(() => {
  ended = true;
});

function addObject() {
  const object = {};
  registry.register(object);
  objects.push(object);
}

for (let i = 0; i < 4; i++) addObject();

/**
 * Waits, for twenty seconds at most, until objects that nothing refers to have ended. An engine does not count the memory of a
 * WebAssembly module when it decides whether to collect them, but that of buffers.
 */
export async function collectGarbage() {
  // An AudioWorklet has no timers.
  if (!globalThis.setTimeout) return;
  const turn = () => new Promise((resolve) => setTimeout(resolve, 20));
  // The first collection may have begun before the last models were given up.
  for (let collection = 0; collection < 2; collection++) {
    ended = false;
    objects.shift();
    // Buffers that survive collections of young objects. Nothing is written, so they take no memory.
    const buffers = [];
    for (let i = 0; i < 500 && !ended; i++) {
      buffers[i % 8] = new ArrayBuffer(2 ** 27);
      await turn();
    }
    addObject();
  }
  // The callbacks of other registries follow.
  for (let i = 0; i < 3; i++) await turn();
}
