/** Defines what an AudioWorklet lacks and the WebAssembly module needs. Imported before everything else. */

globalThis.TextDecoder ??= class {
  decode(bytes = new Uint8Array()) {
    return decodeURIComponent(Array.from(bytes, (byte) => `%${byte.toString(16).padStart(2, '0')}`).join(''));
  }
};

globalThis.TextEncoder ??= class {
  encode(text) {
    // Each escape is a byte of the text in UTF-8.
    const escapes = encodeURIComponent(text).replace(/%(..)/g, (_, digits) => String.fromCharCode(parseInt(digits, 16)));
    return Uint8Array.from(escapes, (character) => character.charCodeAt(0));
  }
};

globalThis.performance ??= { now: () => Date.now() };
