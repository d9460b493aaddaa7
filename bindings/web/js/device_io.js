import { DelegraphError } from './errors.js';
import { isTexture, sizeOf } from './pictures.js';

/** Copies tensors and pictures to and from a device, without a copy through JavaScript. */
export class DeviceIo {
  #device;
  /** Textures that pictures are copied to, by their sizes. */
  #textures = new Map();

  constructor(device) {
    this.#device = device;
  }

  /** Returns a texture with `picture`, a picture of the page or a texture. */
  texture(picture) {
    if (isTexture(picture)) {
      if (!(picture.usage & GPUTextureUsage.TEXTURE_BINDING)) {
        throw new DelegraphError('invalid-input', "the texture's usage lacks TEXTURE_BINDING");
      }
      return picture;
    }
    const [width, height] = sizeOf(picture);
    const key = `${width} ${height}`;
    let texture = this.#textures.get(key);
    if (!texture) {
      this.#release();
      texture = this.#device.createTexture({
        size: [width, height],
        format: 'rgba8unorm',
        usage: GPUTextureUsage.TEXTURE_BINDING | GPUTextureUsage.COPY_DST | GPUTextureUsage.RENDER_ATTACHMENT,
      });
      this.#textures.set(key, texture);
    }
    const copy = (source) => this.#device.queue.copyExternalImageToTexture({ source }, { texture }, [width, height]);
    try {
      try {
        copy(picture);
      } catch (error) {
        // Not every browser and device copies frames of videos; all of them draw frames on a canvas.
        if (error.name === 'SecurityError') throw error;
        const canvas = new OffscreenCanvas(width, height);
        canvas.getContext('2d').drawImage(picture, 0, 0, width, height);
        copy(canvas);
      }
    } catch (error) {
      throw new DelegraphError('invalid-input', `the picture cannot be read: ${error.message}`, { cause: error });
    }
    return texture;
  }

  /** Copies a buffer of the page to `target`. */
  copy(buffer, target, name) {
    if (buffer.size < target.size) {
      throw new DelegraphError('invalid-input', `input "${name}" takes ${target.size} bytes, the buffer has ${buffer.size}`);
    }
    if (!(buffer.usage & GPUBufferUsage.COPY_SRC)) {
      throw new DelegraphError('invalid-input', `the buffer for input "${name}" lacks the usage COPY_SRC`);
    }
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, target, 0, target.size);
    this.#device.queue.submit([encoder.finish()]);
  }

  /** Returns a new buffer with `size` bytes of `buffer` from `offset` on. */
  duplicate(buffer, offset, size) {
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const copy = this.#device.createBuffer({ size, usage });
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, offset, copy, 0, size);
    this.#device.queue.submit([encoder.finish()]);
    return copy;
  }

  /** Reads `size` bytes of `buffer`. */
  async read(buffer, size) {
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const staging = this.#device.createBuffer({ size, usage });
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, size);
    this.#device.queue.submit([encoder.finish()]);
    try {
      await staging.mapAsync(GPUMapMode.READ);
    } catch (error) {
      throw new DelegraphError('device-lost', `the data cannot be read: ${error.message}`, { cause: error });
    }
    const bytes = new Uint8Array(staging.getMappedRange().slice(0));
    staging.destroy();
    return bytes;
  }

  #release() {
    for (const texture of this.#textures.values()) texture.destroy();
    this.#textures.clear();
  }

  dispose() {
    this.#release();
  }
}
