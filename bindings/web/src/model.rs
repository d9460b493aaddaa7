//! A loaded model.

use std::pin::Pin;
use std::task::{Context, Poll};

use delegraph::core::error::counted;
use delegraph::core::kernel::RuntimeTensor;
use delegraph::interpreter::CancellationToken;
use delegraph::{Error, Interpreter, Model, ModelBytes, Result};
use js_sys::{Array, Function, Uint8Array};
use serde::Serialize;
use wasm_bindgen::prelude::*;

use crate::describe::describe;
use crate::error::{state, thrown};
use crate::profile::Steps;
use crate::report::summarize;
use crate::wake::waker;

/// A run that holds the interpreter until its end.
type Run = Pin<Box<dyn Future<Output = (Box<Interpreter>, Result<Vec<Error>>)>>>;

/// A model with its interpreter. One run at a time; the package queues others.
#[wasm_bindgen]
pub struct NativeModel {
    /// `None` during a run.
    interpreter: Option<Box<Interpreter>>,
    run: Option<Run>,
    token: CancellationToken,
    /// The selected signature.
    signature: Option<String>,
    /// The selected subgraph.
    subgraph: usize,
    steps: Steps,
    profiled: bool,
    #[cfg(all(feature = "wgpu", target_arch = "wasm32"))]
    gpu: crate::inputs::Inputs,
}

#[wasm_bindgen]
impl NativeModel {
    /// Loads a model for the CPU. [`NativeModel::prepare`] prepares it, after inputs may have been resized. With
    /// `profile`, [`NativeModel::profile`] returns the steps of a run.
    ///
    /// # Errors
    /// The errors of loading.
    #[wasm_bindgen(constructor)]
    pub fn new(bytes: Vec<u8>, profile: bool) -> Result<NativeModel, JsValue> {
        #[cfg(feature = "testing")]
        assert!(bytes != b"panic", "a panic that a test asked for");
        let build =
            || Interpreter::builder(Model::from_bytes(ModelBytes::new(bytes))?).prepare_later().build();
        build().map(|interpreter| Self::of(interpreter, profile)).map_err(|e| thrown(&e))
    }

    /// Describes inputs, outputs and signatures, as JSON.
    ///
    /// # Errors
    /// During a run.
    pub fn describe(&self) -> Result<String, JsValue> {
        json(&describe(self.idle()?, self.signature.as_deref()))
    }

    /// Selects a signature for all other functions; `undefined` for the first subgraph.
    ///
    /// # Errors
    /// If the model does not have it; during a run.
    pub fn select(&mut self, key: Option<String>) -> Result<(), JsValue> {
        let interpreter = self.idle_mut()?;
        let subgraph = match &key {
            Some(key) => interpreter.select_signature(key).map(|signature| signature.subgraph()),
            None => interpreter.select_subgraph(0).map(|()| 0),
        };
        self.subgraph = subgraph.map_err(|e| thrown(&e))?;
        self.signature = key;
        Ok(())
    }

    /// Sets another shape for input `i`. [`NativeModel::prepare`], or the next run, prepares the model for it.
    ///
    /// # Errors
    /// The errors of the interpreter; during a run.
    pub fn resize(&mut self, i: usize, shape: Vec<u32>) -> Result<(), JsValue> {
        let shape: Vec<usize> = shape.into_iter().map(|dim| dim as usize).collect();
        self.idle_mut()?.resize_input(i, &shape).map_err(|e| thrown(&e))
    }

    /// Completes the preparation after loading, a resize or a selection.
    ///
    /// # Errors
    /// The errors of the interpreter; during a run.
    pub fn prepare(&mut self) -> Result<(), JsValue> {
        self.idle_mut()?.prepare().map_err(|e| thrown(&e))
    }

    /// Copies the bytes of input `i` into the model.
    ///
    /// # Errors
    /// If there is no such input, or the number of bytes differs from its size; the errors of preparing; during a run.
    #[wasm_bindgen(js_name = setInput)]
    pub fn set_input(&mut self, i: usize, bytes: &Uint8Array) -> Result<(), JsValue> {
        let target = self.idle_mut()?.input_bytes_mut(i).map_err(|e| thrown(&e))?;
        if bytes.length() as usize != target.len() {
            let (needed, given) = (counted(target.len(), "byte"), bytes.length());
            let text = format!("input {i} takes {needed}, not {given}");
            return Err(thrown(&Error::InvalidInput(text)));
        }
        bytes.copy_to(target);
        Ok(())
    }

    /// Sets the strings of input `i`.
    ///
    /// # Errors
    /// If the input has elements of another type, or another number of them; the errors of preparing; during a run.
    #[wasm_bindgen(js_name = setStrings)]
    pub fn set_strings(&mut self, i: usize, strings: Vec<String>) -> Result<(), JsValue> {
        self.idle_mut()?.set_input_strings(i, &strings).map_err(|e| thrown(&e))
    }

    /// Returns the bytes of output `i` after a run.
    ///
    /// # Errors
    /// If there is no such output; during a run.
    pub fn output(&self, i: usize) -> Result<Uint8Array, JsValue> {
        let tensor = self.idle()?.output_tensor(i).map_err(|e| thrown(&e))?;
        Ok(Uint8Array::from(tensor.bytes()))
    }

    /// Returns the strings of output `i`, each as its bytes.
    ///
    /// # Errors
    /// If the output has elements of another type; during a run.
    #[wasm_bindgen(js_name = outputStrings)]
    pub fn output_strings(&self, i: usize) -> Result<Array, JsValue> {
        let tensor = self.idle()?.output_tensor(i).map_err(|e| thrown(&e))?;
        let strings = tensor.strings().map_err(|e| thrown(&e))?;
        Ok(strings.iter().map(|bytes| JsValue::from(Uint8Array::from(bytes))).collect())
    }

    /// Returns the shape of output `i`, which may depend on data.
    ///
    /// # Errors
    /// If there is no such output; during a run.
    #[wasm_bindgen(js_name = outputShape)]
    pub fn output_shape(&self, i: usize) -> Result<Vec<u32>, JsValue> {
        let tensor = self.idle()?.output_tensor(i).map_err(|e| thrown(&e))?;
        Ok(dims(tensor))
    }

    /// Runs the model to its end, if no part of it is on a device. Returns whether it did.
    ///
    /// # Errors
    /// The errors of the interpreter; during a run.
    #[wasm_bindgen(js_name = runNow)]
    pub fn run_now(&mut self) -> Result<bool, JsValue> {
        self.steps.clear();
        let interpreter = self.idle_mut()?;
        interpreter.prepare().map_err(|e| thrown(&e))?;
        if !interpreter.report().partitions.is_empty() {
            return Ok(false);
        }
        interpreter.invoke().map_err(|e| thrown(&e))?;
        Ok(true)
    }

    /// Begins a run. [`NativeModel::poll`] continues it.
    ///
    /// # Errors
    /// During a run.
    pub fn start(&mut self) -> Result<(), JsValue> {
        self.steps.clear();
        let mut interpreter = self.interpreter.take().ok_or_else(running)?;
        self.run = Some(Box::pin(async move {
            let result = interpreter.invoke_async_with_fallback().await;
            (interpreter, result)
        }));
        Ok(())
    }

    /// Continues a run. Returns `undefined` while it waits for a device, and calls `wake` when it can continue; at its
    /// end, returns the failures of delegates that were replaced by the CPU.
    ///
    /// # Errors
    /// If no run has begun; the errors of the interpreter, with which the run ends.
    pub fn poll(&mut self, wake: Function) -> Result<Option<Array>, JsValue> {
        let run = self.run.as_mut().ok_or_else(|| state("no run has begun"))?;
        let Poll::Ready((interpreter, result)) = run.as_mut().poll(&mut Context::from_waker(&waker(wake)))
        else {
            return Ok(None);
        };
        self.run = None;
        self.interpreter = Some(interpreter);
        let failures = result.map_err(|e| thrown(&e))?;
        Ok(Some(failures.iter().map(|e| JsValue::from(e.chain())).collect()))
    }

    /// Cancels the run.
    pub fn cancel(&self) {
        if self.run.is_some() {
            self.token.cancel();
        }
    }

    /// Returns every node to the CPU.
    ///
    /// # Errors
    /// The errors of preparing; during a run.
    #[wasm_bindgen(js_name = leaveDevice)]
    pub fn leave_device(&mut self) -> Result<(), JsValue> {
        let interpreter = self.idle_mut()?;
        interpreter.remove_delegates();
        interpreter.prepare().map_err(|e| thrown(&e))
    }

    /// Returns the report on the selected subgraph as JSON: nodes with runners and rejections, partitions, failures of
    /// delegates, and advice.
    ///
    /// # Errors
    /// During a run.
    pub fn report(&self) -> Result<String, JsValue> {
        json(&summarize(self.idle()?, self.subgraph))
    }

    /// Returns the steps of the last run, as JSON.
    ///
    /// # Errors
    /// If the model was loaded without profiling.
    pub fn profile(&self) -> Result<String, JsValue> {
        if !self.profiled {
            return Err(state("the model was loaded without the option `profile`"));
        }
        json(&self.steps.list())
    }
}

impl NativeModel {
    pub(crate) fn of(mut interpreter: Interpreter, profiled: bool) -> Self {
        let steps = Steps::default();
        if profiled {
            interpreter.set_profiler(Some(Box::new(steps.clone())));
        }
        NativeModel {
            token: interpreter.cancellation_token(),
            interpreter: Some(Box::new(interpreter)),
            run: None,
            signature: None,
            subgraph: 0,
            steps,
            profiled,
            #[cfg(all(feature = "wgpu", target_arch = "wasm32"))]
            gpu: crate::inputs::Inputs::default(),
        }
    }

    /// Returns the inputs on the device.
    #[cfg(all(feature = "wgpu", target_arch = "wasm32"))]
    pub(crate) fn gpu_mut(&mut self) -> &mut crate::inputs::Inputs {
        &mut self.gpu
    }

    /// Returns the index of the selected subgraph.
    #[cfg(all(feature = "wgpu", target_arch = "wasm32"))]
    pub(crate) fn subgraph(&self) -> usize {
        self.subgraph
    }

    /// Returns the interpreter.
    ///
    /// # Errors
    /// During a run.
    pub(crate) fn idle(&self) -> Result<&Interpreter, JsValue> {
        self.interpreter.as_deref().ok_or_else(running)
    }

    /// Returns the interpreter, mutable.
    ///
    /// # Errors
    /// During a run.
    pub(crate) fn idle_mut(&mut self) -> Result<&mut Interpreter, JsValue> {
        self.interpreter.as_deref_mut().ok_or_else(running)
    }
}

fn running() -> JsValue {
    state("the model is running")
}

fn dims(tensor: &RuntimeTensor) -> Vec<u32> {
    tensor.shape.dims().iter().map(|dim| u32::try_from(*dim).unwrap_or(u32::MAX)).collect()
}

fn json(value: &impl Serialize) -> Result<String, JsValue> {
    serde_json::to_string(value).map_err(|e| crate::error::object("failed", &e.to_string()))
}
