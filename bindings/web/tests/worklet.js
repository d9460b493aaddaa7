/** An AudioWorklet that runs a model once. It gets the compiled module and the model's bytes, as it cannot fetch. */
import { Model, setWasm } from '/package/cpu.js';

class Runner extends AudioWorkletProcessor {
  constructor({ processorOptions: { module, bytes, input } }) {
    super();
    setWasm(module);
    const answer = (message) => this.port.postMessage(message);
    this.run(bytes, input).then(answer, ({ message }) => answer({ error: message }));
  }

  async run(bytes, input) {
    const model = await Model.load(bytes);
    const [output] = Object.values(await model.run([input]));
    return { data: await output.data(), name: output.name, error: (await Model.load(new Uint8Array(9)).catch((e) => e)).code };
  }

  process() {
    return true;
  }
}

registerProcessor('runner', Runner);
