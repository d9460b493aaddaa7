/** The error of everything that this package rejects or throws. `code` is for programs, `message` for people. */
export class DelegraphError extends Error {
  constructor(code, message, options) {
    super(message, options);
    this.name = 'DelegraphError';
    this.code = code;
  }

  /** Each entry of the package has its own copy of this class. */
  static [Symbol.hasInstance](value) {
    return value instanceof Error && value.name === 'DelegraphError';
  }
}

/** Throws the reason of `signal` if it is aborted. */
export function throwIfAborted(signal) {
  if (signal?.aborted) throw signal.reason;
}
