//! The device: opening it, models on it, and tensors and pictures that are on it.

use std::pin::Pin;
use std::task::{Context, Poll};

use delegraph::core::NodeId;
use delegraph::delegate_api::{BufferHandle, PartitionOptions, Runner};
use delegraph::delegate_wgpu::{GpuBuffer, PipelineCache, WgpuDelegate, WgpuOptions, wgpu};
use delegraph::{Error, Interpreter, Model, ModelBytes};
use js_sys::{Array, Function};
use wasm_bindgen::prelude::*;

use crate::error::{object, state, thrown};
use crate::inputs::Picture;
use crate::model::NativeModel;
use crate::wake::waker;

type Opening = Pin<Box<dyn Future<Output = Result<WgpuDelegate, JsValue>>>>;

/// A device that is being opened.
#[wasm_bindgen]
pub struct GpuOpening {
    future: Opening,
}

#[wasm_bindgen]
impl GpuOpening {
    /// Begins to open a device: the object `navigator.gpu` is read here and not later. `power` is `low-power`,
    /// `high-performance` or empty. With `fallback`, only a software adapter is accepted.
    #[wasm_bindgen(constructor)]
    pub fn new(power: &str, fallback: bool) -> GpuOpening {
        let descriptor = wgpu::InstanceDescriptor {
            backends: wgpu::Backends::BROWSER_WEBGPU,
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        };
        let instance = wgpu::Instance::new(descriptor);
        let options = wgpu::RequestAdapterOptions {
            power_preference: match power {
                "low-power" => wgpu::PowerPreference::LowPower,
                "high-performance" => wgpu::PowerPreference::HighPerformance,
                _ => wgpu::PowerPreference::None,
            },
            force_fallback_adapter: fallback,
            ..Default::default()
        };
        let future = async move {
            let unavailable = |text: String| object("webgpu-unavailable", &text);
            let adapter = instance.request_adapter(&options).await;
            let adapter = adapter.map_err(|e| match e {
                // The details are about backends that a browser does not have.
                wgpu::RequestAdapterError::NotFound { .. } => {
                    unavailable("the browser has no WebGPU adapter".into())
                }
                e => unavailable(format!("the browser did not open a WebGPU adapter: {e}")),
            })?;
            let options =
                WgpuOptions::default().with_pipeline_cache(PipelineCache::Off).with_trusted_shaders(true);
            WgpuDelegate::on_adapter(&adapter, options).await.map_err(|e| unavailable(Error::from(e).chain()))
        };
        GpuOpening { future: Box::pin(future) }
    }

    /// Continues opening. Returns `undefined` while it waits, and calls `wake` when it can continue.
    ///
    /// # Errors
    /// The reason why no device can be opened.
    pub fn poll(&mut self, wake: Function) -> Result<Option<Gpu>, JsValue> {
        match self.future.as_mut().poll(&mut Context::from_waker(&waker(wake))) {
            Poll::Ready(delegate) => Ok(Some(Gpu { delegate: delegate? })),
            Poll::Pending => Ok(None),
        }
    }
}

/// An open device. Models on it share compiled shaders.
#[wasm_bindgen]
pub struct Gpu {
    delegate: WgpuDelegate,
}

#[wasm_bindgen]
impl Gpu {
    /// Returns the `GPUDevice`.
    pub fn device(&self) -> JsValue {
        let (device, _) = self.delegate.device_and_queue();
        device.as_webgpu().map_or(JsValue::UNDEFINED, |device| device.clone().into())
    }

    /// Returns the name of the adapter.
    pub fn adapter(&self) -> String {
        let info = self.delegate.adapter_info();
        let parts = [&info.name, &info.driver, &info.driver_info];
        let parts: Vec<&str> =
            parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        if parts.is_empty() { "WebGPU".into() } else { parts.join(" ") }
    }

    /// Returns the reason why the device was lost; `undefined` if it was not.
    pub fn lost(&self) -> Option<String> {
        self.delegate.loss_reason()
    }

    /// Returns the number of pipelines compiled so far.
    #[wasm_bindgen(js_name = compiledPipelines)]
    pub fn compiled_pipelines(&self) -> usize {
        self.delegate.compiled_pipelines()
    }

    /// Loads a model whose nodes run on the device where it supports them. Nodes in `excluded` run on the CPU. With
    /// `keep`, outputs stay on the device; with `profile`, [`NativeModel::profile`] returns the steps of a run.
    /// [`NativeModel::prepare`] prepares the model, after inputs may have been resized.
    ///
    /// # Errors
    /// The errors of loading.
    pub fn load(
        &self,
        bytes: Vec<u8>,
        profile: bool,
        keep: bool,
        excluded: Vec<u32>,
    ) -> Result<NativeModel, JsValue> {
        let nodes = excluded.into_iter().map(|node| NodeId(node as usize));
        let limits = PartitionOptions::default().with_excluded_nodes(nodes);
        let build = || {
            let builder = Interpreter::builder(Model::from_bytes(ModelBytes::new(bytes))?)
                .delegate_with(self.delegate.clone(), limits)
                .prepare_later();
            if keep { builder.keep_outputs().build() } else { builder.build() }
        };
        let mut model =
            build().map(|interpreter| NativeModel::of(interpreter, profile)).map_err(|e| thrown(&e))?;
        model.gpu_mut().delegate = Some(self.delegate.clone());
        Ok(model)
    }
}

#[wasm_bindgen]
impl NativeModel {
    /// Returns whether input `i` can be on the device: it has 32-bit floats or integers, and only the device reads it.
    ///
    /// # Errors
    /// The errors of preparing; during a run.
    #[wasm_bindgen(js_name = inputOnDevice)]
    pub fn input_on_device(&mut self, i: usize) -> Result<bool, JsValue> {
        if self.gpu_mut().delegate.is_none() {
            return Ok(false);
        }
        let subgraph = self.subgraph();
        let interpreter = self.idle_mut()?;
        interpreter.prepare().map_err(|e| thrown(&e))?;
        let tensor = interpreter.input_tensor(i).map_err(|e| thrown(&e))?;
        if tensor.ty.bits() != Some(32) {
            return Ok(false);
        }
        let Some(file) = interpreter.model().subgraph(subgraph) else { return Ok(false) };
        let Some(id) = file.inputs().get(i).copied() else { return Ok(false) };
        let mut readers = interpreter
            .report()
            .nodes
            .iter()
            .filter(|node| file.nodes().get(node.node.0).is_some_and(|n| n.inputs().contains(&Some(id))))
            .peekable();
        let read = readers.peek().is_some();
        let delegated = readers.all(|node| matches!(node.runner, Runner::Delegate { .. }));
        Ok(read && delegated && !file.outputs().contains(&id))
    }

    /// Creates input `i` from a texture of the device, for the next run. `region` is the part of the texture, in
    /// fractions of its size; `range` has the factors, followed by the summands of the components.
    ///
    /// # Errors
    /// If the model is not on a device, or the input is not `[1, height, width, channels]`; for other formats of
    /// textures; the errors of the device; during a run.
    #[wasm_bindgen(js_name = setTexture)]
    pub fn set_texture(
        &mut self,
        i: usize,
        texture: JsValue,
        format: &str,
        size: Vec<u32>,
        region: Vec<f32>,
        range: Vec<f32>,
    ) -> Result<(), JsValue> {
        let invalid = |text: String| thrown(&Error::InvalidInput(text));
        let delegate = self.gpu_mut().delegate.clone().ok_or_else(no_device)?;
        let (Ok(region), Ok(range)) = (<[f32; 4]>::try_from(region), <[f32; 8]>::try_from(range)) else {
            return Err(invalid("a picture has a region of 4 numbers and a range of 8".into()));
        };
        let tensor = self.idle()?.input_tensor(i).map_err(|e| thrown(&e))?;
        let shape = <[usize; 4]>::try_from(tensor.shape.dims()).map_err(|_| {
            invalid(format!(
                "input {i} has shape {}; a picture is [1, height, width, channels]",
                tensor.shape
            ))
        })?;
        let format = match format {
            "rgba8unorm" => wgpu::TextureFormat::Rgba8Unorm,
            "rgba8unorm-srgb" => wgpu::TextureFormat::Rgba8UnormSrgb,
            "bgra8unorm" => wgpu::TextureFormat::Bgra8Unorm,
            "bgra8unorm-srgb" => wgpu::TextureFormat::Bgra8UnormSrgb,
            "rgba16float" => wgpu::TextureFormat::Rgba16Float,
            "rgba32float" => wgpu::TextureFormat::Rgba32Float,
            other => return Err(invalid(format!("textures of format {other} are not supported"))),
        };
        let known = self.gpu_mut().pictures.get(&i).is_some_and(|p| p.shape == shape && p.range == range);
        if !known {
            let [scale @ .., _, _, _, _] = range;
            let [_, _, _, _, offset @ ..] = range;
            let mut input = delegate.texture_input(shape).map_err(|e| thrown(&e))?;
            input.set_scale(scale).and_then(|()| input.set_offset(offset)).map_err(|e| thrown(&e))?;
            self.gpu_mut().pictures.insert(i, Picture { input, shape, range });
        }
        let (width, height) = match size.as_slice() {
            [width, height] => (*width, *height),
            _ => return Err(invalid("a texture has a width and a height".into())),
        };
        let (device, _) = delegate.device_and_queue();
        let descriptor = wgpu::TextureDescriptor {
            label: None,
            size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format,
            usage: wgpu::TextureUsages::TEXTURE_BINDING,
            view_formats: &[],
        };
        let texture = device.create_texture_from_webgpu_handle(texture.unchecked_into(), &descriptor, None);
        let view = texture.create_view(&Default::default());
        let Some(picture) = self.gpu_mut().pictures.get_mut(&i) else { return Err(no_device()) };
        picture
            .input
            .set_region(region)
            .and_then(|()| picture.input.convert(&view))
            .map_err(|e| thrown(&e))?;
        let buffer = picture.input.buffer();
        self.bind(i, Some(buffer))
    }

    /// Returns the `GPUBuffer` from which the next run reads input `i`; the page copies data to it.
    ///
    /// # Errors
    /// If the model is not on a device, or there is no such input; the errors of the device; during a run.
    #[wasm_bindgen(js_name = inputBuffer)]
    pub fn input_buffer(&mut self, i: usize) -> Result<JsValue, JsValue> {
        let delegate = self.gpu_mut().delegate.clone().ok_or_else(no_device)?;
        let bytes =
            self.idle()?.input_tensor(i).and_then(|tensor| tensor.byte_size()).map_err(|e| thrown(&e))?;
        let known = self.gpu_mut().buffers.get(&i).filter(|buffer| buffer.size() == bytes as u64).cloned();
        let buffer = known.unwrap_or_else(|| {
            let (device, _) = delegate.device_and_queue();
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("input"),
                size: bytes as u64,
                usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            })
        });
        let handle = delegate.input_buffer(&buffer, 0, bytes as u64).map_err(|e| thrown(&e))?;
        let object = buffer.as_webgpu().map_or(JsValue::UNDEFINED, |buffer| buffer.clone().into());
        self.gpu_mut().buffers.insert(i, buffer);
        self.bind(i, Some(handle))?;
        Ok(object)
    }

    /// Reads input `i` from the CPU's memory again.
    ///
    /// # Errors
    /// If there is no such input; the errors of preparing; during a run.
    #[wasm_bindgen(js_name = clearBuffer)]
    pub fn clear_buffer(&mut self, i: usize) -> Result<(), JsValue> {
        self.bind(i, None)
    }

    /// Returns `[GPUBuffer, offset, bytes]` of output `i` if the last run left it on the device.
    ///
    /// # Errors
    /// During a run.
    #[wasm_bindgen(js_name = outputBuffer)]
    pub fn output_buffer(&self, i: usize) -> Result<Option<Array>, JsValue> {
        let handle = self.idle()?.output_buffer(i);
        let Some(buffer) = handle.and_then(|handle| handle.downcast_ref::<GpuBuffer>()) else {
            return Ok(None);
        };
        let Some(object) = buffer.buffer().as_webgpu() else { return Ok(None) };
        let (offset, size) = (buffer.offset() as f64, buffer.size() as f64);
        Ok(Some(Array::of3(&object.clone().into(), &offset.into(), &size.into())))
    }
}

impl NativeModel {
    fn bind(&mut self, i: usize, buffer: Option<BufferHandle>) -> Result<(), JsValue> {
        self.idle_mut()?.set_input_buffer(i, buffer).map_err(|e| thrown(&e))
    }
}

fn no_device() -> JsValue {
    state("the model is not on a device")
}
