//! Textures of the application as input tensors, without a copy through the CPU.

use std::fmt;
use std::sync::Arc;

use delegraph_core::{Error, Result};
use delegraph_delegate_api::BufferHandle;
use delegraph_shaders::Shader;
use delegraph_shaders::texture::Spec;

use super::GpuBuffer;
use crate::compile::Compiler;
use crate::device::{Gpu, failed};

/// Converts textures to an input tensor on the device: crops, scales, and maps colours to the range that the model
/// expects.
///
/// ```no_run
/// # use delegraph_delegate_wgpu::{WgpuDelegate, WgpuOptions, wgpu};
/// # fn main() -> delegraph_core::Result<()> {
/// # let delegate = WgpuDelegate::new(WgpuOptions::default())?;
/// # let frame: wgpu::TextureView = todo!();
/// // Colours from -1 to 1.
/// let mut input = delegate.texture_input([1, 256, 256, 3])?;
/// input.set_scale([2.0; 4])?;
/// input.set_offset([-1.0; 4])?;
/// // Once: interpreter.set_input_buffer(0, Some(input.buffer()))?;
/// input.convert(&frame)?;
/// // interpreter.invoke()?;
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
pub struct TextureInput {
    gpu: Arc<Gpu>,
    pipeline: Arc<wgpu::ComputePipeline>,
    spec: Spec,
    workgroups: [u32; 3],
    params: wgpu::Buffer,
    tensor: wgpu::Buffer,
}

impl fmt::Debug for TextureInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextureInput").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl TextureInput {
    /// Compiles the pipeline and allocates the buffers; see `WgpuDelegate::texture_input`.
    pub(crate) fn new(gpu: &Arc<Gpu>, compiler: &Compiler, shape: [usize; 4]) -> Result<TextureInput> {
        let wrong = |what: &dyn std::fmt::Display| {
            Error::InvalidInput(format!(
                "a texture cannot be converted to a tensor of shape {shape:?}: {what}"
            ))
        };
        let [1, output @ ..] = shape else { return Err(wrong(&"only a batch of 1 is supported")) };
        let mut sizes = [0; 3];
        for (to, from) in sizes.iter_mut().zip(output) {
            *to = u32::try_from(from).map_err(|e| wrong(&e))?;
        }
        let spec = Spec { output: sizes, region: [0.0, 0.0, 1.0, 1.0], scale: [1.0; 4], offset: [0.0; 4] };
        let kernel = spec.kernel(&gpu.caps).map_err(|e| wrong(&e))?;
        let pipeline = compiler.pipeline(&kernel.variant).map_err(|e| failed(e.to_string()))?;
        let buffer = |label, size, usage| {
            let mapped_at_creation = false;
            let descriptor = wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation };
            gpu.create_buffer(&descriptor)
                .map_err(|e| failed(format!("{size} bytes for a texture input: {e}")))
        };
        use wgpu::BufferUsages as Usage;
        let params = buffer("region", kernel.uniform.len() as u64, Usage::UNIFORM | Usage::COPY_DST)?;
        let bytes = 4 * sizes.iter().map(|&d| u64::from(d)).product::<u64>();
        let tensor = buffer("picture", bytes, Usage::STORAGE | Usage::COPY_SRC)?;
        let workgroups = kernel.dispatch;
        let mut input = TextureInput { gpu: Arc::clone(gpu), pipeline, spec, workgroups, params, tensor };
        input.set(spec)?;
        Ok(input)
    }

    /// Returns the tensor, for `Interpreter::set_input_buffer`.
    pub fn buffer(&self) -> BufferHandle {
        BufferHandle::new(GpuBuffer::new(&self.gpu, &self.tensor, 0, self.tensor.size()))
    }

    /// Sets the region of later textures that the tensor shows: left edge, upper edge, width and height, in fractions
    /// of the texture's size. Pixels outside of the texture are black, so a region larger than the texture keeps the
    /// proportions.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if a number is not finite, [`Error::Delegate`] where the device is lost.
    pub fn set_region(&mut self, region: [f32; 4]) -> Result<()> {
        if !region.iter().all(|side| side.is_finite()) {
            return Err(Error::InvalidInput(format!("region {region:?}; only finite numbers are supported")));
        }
        self.set(Spec { region, ..self.spec })
    }

    /// Sets the factors of red, green, blue and alpha for later textures; 1 at first. Components are from 0 to 1 in the
    /// usual formats; pixels outside of the texture are scaled, too.
    ///
    /// # Errors
    /// [`Error::Delegate`] where the device is lost.
    pub fn set_scale(&mut self, scale: [f32; 4]) -> Result<()> {
        self.set(Spec { scale, ..self.spec })
    }

    /// Sets what is added to red, green, blue and alpha after scaling, for later textures; 0 at first.
    ///
    /// # Errors
    /// [`Error::Delegate`] where the device is lost.
    pub fn set_offset(&mut self, offset: [f32; 4]) -> Result<()> {
        self.set(Spec { offset, ..self.spec })
    }

    fn set(&mut self, spec: Spec) -> Result<()> {
        self.spec = spec;
        let write = || self.gpu.queue.write_buffer(&self.params, 0, &self.spec.uniform());
        self.gpu.checked(write).map_err(|e| failed(e.to_string()))
    }

    /// Converts a texture to the tensor, for commands that are submitted to the queue afterwards. Does not wait.
    ///
    /// `picture` has two dimensions, a format of floats or normalised integers, and the usage `TEXTURE_BINDING`. The
    /// shader reads the components as the view's format defines them: `Rgba8Unorm` gives the stored bytes divided by
    /// 255, on which models are usually trained; `Rgba8UnormSrgb` gives linear light.
    ///
    /// # Errors
    /// [`Error::Delegate`] if the texture is of another kind, or the device is lost.
    pub fn convert(&self, picture: &wgpu::TextureView) -> Result<()> {
        let convert = || {
            let mut encoder = self.gpu.device.create_command_encoder(&Default::default());
            self.record(&mut encoder, picture);
            self.gpu.queue.submit([encoder.finish()]);
        };
        self.gpu.checked(convert).map_err(|e| failed(format!("converting a texture: {e}")))
    }

    /// As [`TextureInput::convert`], recorded into the application's encoder. wgpu reports an unsuitable texture to the
    /// device's error scope, or to its handler of uncaptured errors.
    pub fn record(&self, encoder: &mut wgpu::CommandEncoder, picture: &wgpu::TextureView) {
        let resources = [
            wgpu::BindingResource::TextureView(picture),
            self.tensor.as_entire_binding(),
            self.params.as_entire_binding(),
        ];
        let entry = |(binding, resource)| wgpu::BindGroupEntry { binding, resource };
        let entries: Vec<_> = (0..).zip(resources).map(entry).collect();
        let group = self.gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("picture"),
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        let [x, y, z] = self.workgroups;
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(x, y, z);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WgpuDelegate;
    use crate::testing::delegate;

    /// A texture of 2 by 2 pixels: black, red; green, blue.
    fn picture(delegate: &WgpuDelegate, usage: wgpu::TextureUsages) -> wgpu::TextureView {
        let (device, queue) = delegate.device_and_queue();
        let descriptor = wgpu::TextureDescriptor {
            label: None,
            size: wgpu::Extent3d { width: 2, height: 2, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: wgpu::TextureFormat::Rgba8Unorm,
            usage: usage | wgpu::TextureUsages::COPY_DST,
            view_formats: &[],
        };
        let texture = device.create_texture(&descriptor);
        let bytes = [[0, 0, 0, 255], [255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255]].concat();
        let layout =
            wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(8), rows_per_image: Some(2) };
        queue.write_texture(texture.as_image_copy(), &bytes, layout, descriptor.size);
        texture.create_view(&Default::default())
    }

    fn read(input: &TextureInput) -> Vec<f32> {
        let handle = input.buffer();
        let mut bytes = vec![0; handle.byte_size()];
        handle.read(&mut bytes).unwrap();
        bytemuck::pod_collect_to_vec(&bytes)
    }

    #[track_caller]
    fn check(shape: [usize; 4], region: [f32; 4], (scale, offset): (f32, f32), expected: &[f32]) {
        let Some(delegate) = delegate() else { return };
        let mut input = delegate.texture_input(shape).unwrap();
        input.set_scale([scale; 4]).unwrap();
        input.set_offset([offset; 4]).unwrap();
        input.set_region(region).unwrap();
        input.convert(&picture(delegate, wgpu::TextureUsages::TEXTURE_BINDING)).unwrap();
        let got = read(&input);
        approx::assert_abs_diff_eq!(*got, *expected, epsilon = 1e-6);
    }

    const WHOLE: [f32; 4] = [0.0, 0.0, 1.0, 1.0];

    #[test]
    fn pixels_become_elements() {
        let colours = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        check([1, 2, 2, 3], WHOLE, (1.0, 0.0), &colours);
        check([1, 2, 2, 3], WHOLE, (2.0, -1.0), &colours.map(|c| 2.0 * c - 1.0));
        check([1, 2, 2, 1], WHOLE, (1.0, 0.0), &[0.0, 0.299, 0.587, 0.114]);
        // The centre of all four pixels.
        check([1, 1, 1, 4], WHOLE, (1.0, 0.0), &[0.25, 0.25, 0.25, 1.0]);
    }

    #[test]
    fn a_region_is_cut_out_and_black_outside() {
        // The lower right pixel, and as much outside of the texture.
        check([1, 2, 2, 3], [0.5, 0.5, 1.0, 1.0], (1.0, 0.0), &{
            let mut pixels = [0.0; 12];
            pixels[2] = 1.0;
            pixels
        });
        // From black to red: centres of the tensor's pixels at 0.25 and 0.75 of the upper row, and in the middle.
        check([1, 1, 3, 1], [0.125, 0.0, 0.75, 0.5], (1.0, 0.0), &[0.0, 0.1495, 0.299]);
    }

    #[test]
    fn what_cannot_be_a_tensor_is_an_error() {
        let Some(delegate) = delegate() else { return };
        for shape in [[2, 4, 4, 3], [1, 4, 4, 2], [1, 0, 4, 3], [1, 1 << 20, 1 << 20, 3]] {
            let error = delegate.texture_input(shape).map(drop).unwrap_err();
            assert!(matches!(error, Error::InvalidInput(_)), "{error}");
        }
        let mut input = delegate.texture_input([1, 2, 2, 3]).unwrap();
        assert!(input.set_region([0.0, f32::NAN, 1.0, 1.0]).is_err());
        let unbound = picture(delegate, wgpu::TextureUsages::COPY_SRC);
        let error = input.convert(&unbound).unwrap_err().to_string();
        assert!(error.contains("TEXTURE_BINDING"), "{error}");
    }
}
