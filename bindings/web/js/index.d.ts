/** The types of tensors. */
export type TensorType =
  | 'float32' | 'float16' | 'bfloat16' | 'float64' | 'float8_e4m3fn' | 'float8_e5m2'
  | 'int2' | 'int4' | 'int8' | 'int16' | 'int32' | 'int64'
  | 'uint4' | 'uint8' | 'uint16' | 'uint32' | 'uint64'
  | 'bool' | 'complex64' | 'complex128' | 'string' | 'resource' | 'variant';

/** Arrays of numbers. `float16` is Float16Array where the engine has it, otherwise Float32Array with the same values. */
export type TensorArray =
  | Float32Array | Float64Array | Int8Array | Uint8Array | Uint8ClampedArray | Int16Array | Uint16Array
  | Int32Array | Uint32Array | BigInt64Array | BigUint64Array;

/** The codes of errors. */
export type ErrorCode =
  | 'invalid-model' | 'invalid-input' | 'invalid-data' | 'unsupported' | 'limit' | 'out-of-memory' | 'state'
  | 'cancelled' | 'network' | 'module' | 'worker' | 'webgpu-unavailable' | 'device' | 'device-lost' | 'panic' | 'failed';

/** The error of everything that this package rejects or throws. */
export class DelegraphError extends Error {
  constructor(code: ErrorCode, message: string, options?: ErrorOptions);
  readonly code: ErrorCode;
}

export interface Quantization {
  /** One scale, or one per index of `dimension`. */
  scales: number[];
  zeroPoints: number[];
  dimension: number;
}

export interface TensorDescription {
  name: string;
  type: TensorType;
  shape: number[];
  /** As in the file; -1 for dimensions that may be resized. */
  shapeSignature: number[];
  quantization: Quantization | null;
}

export interface Signature {
  key: string;
  inputs: string[];
  outputs: string[];
}

/** A picture that a page can draw. */
export type Picture =
  | ImageBitmap | VideoFrame | OffscreenCanvas | HTMLCanvasElement | HTMLImageElement | HTMLVideoElement | ImageData;

/** A picture, or a part of it, for an input of shape `[1, height, width, 1, 3 or 4]`. */
export interface PictureInput {
  picture: Picture | GPUTextureLike;
  /** Left, top, width and height, in fractions of the picture's size; black outside of the picture. Default: all of it. */
  region?: [number, number, number, number];
  /** The values of black and white; [0, 1] by default, the whole range of the type for 8-bit inputs. */
  range?: [number, number];
}

/** Stand-ins for the types of WebGPU, so that `@webgpu/types` is not required. */
export interface GPUDeviceLike {
  readonly queue: object;
  readonly lost: Promise<object>;
}
export interface GPUTextureLike {
  readonly width: number;
  readonly height: number;
  readonly format: string;
}
export interface GPUBufferLike {
  readonly size: number;
  readonly usage: number;
  destroy(): undefined | void;
}

export type InputValue =
  | TensorArray | readonly number[] | readonly bigint[] | readonly boolean[] | readonly string[]
  | number | bigint | boolean | string
  | Picture | PictureInput | GPUTextureLike | GPUBufferLike;

/** The values of all inputs: by names, in their order, or the value of the only input. */
export type Inputs = { readonly [name: string]: InputValue } | readonly InputValue[] | InputValue;

export type ModelSource = string | URL | ArrayBuffer | ArrayBufferView | Response | Blob;

export interface Progress {
  loaded: number;
  /** Undefined if the server does not report it. */
  total: number | undefined;
}

export interface LoadOptions {
  /**
   * 'auto' (default): WebGPU where there is a device that is not a software renderer, otherwise the CPU. 'webgpu': WebGPU,
   * or an error. Nodes that the device does not support run on the CPU in both cases; the report has the reasons.
   */
  device?: 'auto' | 'webgpu' | 'cpu';
  /** A device of the page. Its textures and buffers can be inputs. */
  gpuDevice?: GPUDeviceLike;
  powerPreference?: 'low-power' | 'high-performance';
  forceFallbackAdapter?: boolean;
  signal?: AbortSignal;
  onProgress?: (progress: Progress) => void;
  /** Whether steps are measured, for `profile()`. */
  profile?: boolean;
  /** 'gpu': outputs that the device computes stay there, as `gpuBuffer`. */
  outputs?: 'cpu' | 'gpu';
  /** Shapes of inputs that differ from those in the file, by names or in their order. `resize` changes them later. */
  shapes?: { readonly [name: string]: readonly number[] } | readonly (readonly number[] | undefined)[];
  /** Nodes that run on the CPU, by their indices. */
  excludedNodes?: Iterable<number>;
}

export interface RunOptions {
  signal?: AbortSignal;
  /** The key of a signature; without it, the model's first subgraph runs. */
  signature?: string;
}

export interface Output<Data = TensorArray | string[]> {
  readonly name: string;
  readonly type: TensorType;
  readonly shape: number[];
  /** The data on the device, with the usages STORAGE and COPY_SRC; only with the option `outputs: 'gpu'`. */
  readonly gpuBuffer: GPUBufferLike | undefined;
  data<D = Data>(): Promise<D>;
  dispose(): void;
}

export interface ReportedNode {
  index: number;
  op: string;
  version: number;
  /** 'folded': computed while loading, because its inputs are constant. */
  runner: 'cpu' | 'folded' | 'delegate';
  delegate: string | null;
  partition: number | null;
  rejections: { delegate: string; kind: string; reason: string }[];
  inputs: (number | null)[];
  outputs: { index: number; name: string; type: TensorType; shape: number[] }[];
  multiplyAdds: number;
}

export interface ReportedPartition {
  delegate: string;
  nodes: number[];
  multiplyAdds: number;
  boundaryBytes: number;
  dispatches: number;
  deviceBytes: number;
  uploadMilliseconds: number | null;
  deviceMilliseconds: number | null;
  readbackMilliseconds: number | null;
}

/** The runner of each node, or the reason of the device. */
export interface Report {
  device: 'webgpu' | 'cpu';
  adapter: string | undefined;
  /** The reason why nothing runs on the device. */
  reason: string | undefined;
  delegates: string[];
  nodes: ReportedNode[];
  partitions: ReportedPartition[];
  failures: { delegate: string; message: string }[];
  /** Reasons for which nodes are not on the device, and the partitions without each; the largest gain first. */
  advice: {
    delegate: string;
    op: string;
    version: number;
    reason: string;
    nodes: number;
    partitionsNow: number;
    partitionsWithout: number | null;
  }[];
  memoryBytes: number;
  /** The vector instructions of CPU kernels: 'simd128', 'relaxed-simd', or 'relaxed-dot' with products of bytes. */
  instructionSet: string;
}

export interface Step {
  subgraph: number;
  nodes: number[];
  /** Null for the CPU. */
  delegate: string | null;
  milliseconds: number;
}

export class Model {
  private constructor();
  static load(source: ModelSource, options?: LoadOptions): Promise<Model>;
  readonly inputs: TensorDescription[];
  readonly outputs: TensorDescription[];
  readonly signatures: Signature[];
  readonly description: string;
  /** Changes the shape of an input, and prepares the model for it. */
  resize(input: string | number, shape: Iterable<number>, options?: { signature?: string }): Promise<void>;
  run(inputs?: Inputs, options?: RunOptions): Promise<{ [name: string]: Output }>;
  report(): Promise<Report>;
  /** The steps of the last run; needs the option `profile`. */
  profile(): Promise<Step[]>;
  dispose(): void;
}

/** Sets the source of the WebAssembly module, before the first model is loaded. */
export function setWasm(source: string | URL | Response | BufferSource | WebAssembly.Module): void;
