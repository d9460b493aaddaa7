//! Pictures of the application as input tensors, with no trip over the CPU.

use std::sync::Arc;

use delegraph_core::{Error, Result};
use delegraph_delegate_api::BufferHandle;
use delegraph_shaders::texture::Spec;

use crate::WgpuDelegate;
use crate::buffer::GpuBuffer;
use crate::context::Context;
use crate::kernel::failed;

/// Makes an input tensor of pictures in textures, on the device: cut out, scaled, and with colours in the range that the
/// model wants.
///
/// ```no_run
/// # use delegraph_delegate_wgpu::{WgpuDelegate, WgpuOptions, wgpu};
/// # fn main() -> delegraph_core::Result<()> {
/// # let delegate = WgpuDelegate::new(WgpuOptions::default())?;
/// # let frame: wgpu::TextureView = todo!();
/// // Colours from -1 to 1.
/// let input = delegate.texture_input([1, 256, 256, 3], [2.0; 4], [-1.0; 4])?;
/// // Once: interpreter.set_input_buffer(0, Some(input.buffer()))?;
/// input.convert(&frame)?;
/// // interpreter.invoke()?;
/// # Ok(())
/// # }
/// ```
pub struct TextureInput {
    context: Arc<Context>,
    pipeline: Arc<wgpu::ComputePipeline>,
    spec: Spec,
    workgroups: [u32; 3],
    params: wgpu::Buffer,
    tensor: wgpu::Buffer,
}

impl WgpuDelegate {
    /// Pictures as FLOAT32 tensors of this shape, `[1, height, width, channels]` with 1 channel (how bright), 3, or 4.
    /// Red, green, blue and alpha, from 0 to 1, are multiplied by `scale`, and `offset` is added.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for other shapes, [`Error::Delegate`] where the device has no room or is lost.
    pub fn texture_input(
        &self,
        shape: [usize; 4],
        scale: [f32; 4],
        offset: [f32; 4],
    ) -> Result<TextureInput> {
        let context = Arc::clone(self.context());
        let wrong = |what: &dyn std::fmt::Display| {
            Error::InvalidInput(format!("no picture becomes a tensor of {shape:?}: {what}"))
        };
        let [1, output @ ..] = shape else { return Err(wrong(&"there is one at a time")) };
        let mut sizes = [0; 3];
        for (to, from) in sizes.iter_mut().zip(output) {
            *to = u32::try_from(from).map_err(|e| wrong(&e))?;
        }
        let spec = Spec { output: sizes, region: [0.0, 0.0, 1.0, 1.0], scale, offset };
        let kernel = spec.kernel(&context.caps).map_err(|e| wrong(&e))?;
        let pipeline = context.pipeline(&kernel).map_err(|e| failed(e.to_string()))?;
        let buffer = |label, size, usage| {
            let mapped_at_creation = false;
            let descriptor = wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation };
            context.create_buffer(&descriptor).map_err(|e| failed(format!("{size} bytes for a picture: {e}")))
        };
        use wgpu::BufferUsages as Usage;
        let params = buffer("region", kernel.uniform.len() as u64, Usage::UNIFORM | Usage::COPY_DST)?;
        let bytes = 4 * sizes.iter().map(|&d| u64::from(d)).product::<u64>();
        let tensor = buffer("picture", bytes, Usage::STORAGE | Usage::COPY_SRC)?;
        let workgroups = kernel.dispatch;
        let mut input = TextureInput { context, pipeline, spec, workgroups, params, tensor };
        input.set_region(spec.region)?;
        Ok(input)
    }
}

impl TextureInput {
    /// The tensor, for `Interpreter::set_input_buffer`.
    pub fn buffer(&self) -> BufferHandle {
        BufferHandle::new(GpuBuffer::new(&self.context, &self.tensor, 0, self.tensor.size()))
    }

    /// What the tensor shows of pictures to come: left edge, upper edge, width and height, where a picture's sides are 1
    /// long. What lies outside of it is black, so that a region larger than the picture keeps its proportions.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] where one of them is not finite, [`Error::Delegate`] where the device is lost.
    pub fn set_region(&mut self, region: [f32; 4]) -> Result<()> {
        if !region.iter().all(|side| side.is_finite()) {
            return Err(Error::InvalidInput(format!("no part of a picture is {region:?}")));
        }
        self.spec.region = region;
        let write = || self.context.queue.write_buffer(&self.params, 0, &self.spec.uniform());
        self.context.checked(write).map_err(|e| failed(e.to_string()))
    }

    /// Makes the tensor of a picture. What is submitted to the queue afterwards sees it; nothing waits.
    ///
    /// `picture` has two dimensions, a format of floats or normalised integers, and can be bound
    /// (`TEXTURE_BINDING`). The shader sees what the format says: a view as `Rgba8Unorm` gives a photo's bytes over
    /// 255, which models are usually trained on, one as `Rgba8UnormSrgb` gives linear light.
    ///
    /// # Errors
    /// [`Error::Delegate`] where the texture is of another kind, or the device is lost.
    pub fn convert(&self, picture: &wgpu::TextureView) -> Result<()> {
        let convert = || {
            let mut encoder = self.context.device.create_command_encoder(&Default::default());
            self.record(&mut encoder, picture);
            self.context.queue.submit([encoder.finish()]);
        };
        self.context.checked(convert).map_err(|e| failed(format!("a picture as a tensor: {e}")))
    }

    /// As [`TextureInput::convert`], as a part of the application's own commands; what is wrong with the texture is an
    /// error of theirs.
    pub fn record(&self, encoder: &mut wgpu::CommandEncoder, picture: &wgpu::TextureView) {
        let resources = [
            wgpu::BindingResource::TextureView(picture),
            self.tensor.as_entire_binding(),
            self.params.as_entire_binding(),
        ];
        let entry = |(binding, resource)| wgpu::BindGroupEntry { binding, resource };
        let entries: Vec<_> = (0..).zip(resources).map(entry).collect();
        let group = self.context.device.create_bind_group(&wgpu::BindGroupDescriptor {
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
    use crate::testing::delegate;

    /// A picture of 2 by 2: black, red; green, blue.
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
        let mut input = delegate.texture_input(shape, [scale; 4], [offset; 4]).unwrap();
        input.set_region(region).unwrap();
        input.convert(&picture(delegate, wgpu::TextureUsages::TEXTURE_BINDING)).unwrap();
        let got = read(&input);
        let close =
            got.len() == expected.len() && got.iter().zip(expected).all(|(g, e)| (g - e).abs() < 1e-6);
        assert!(close, "{got:?}, expected {expected:?}");
    }

    const WHOLE: [f32; 4] = [0.0, 0.0, 1.0, 1.0];

    #[test]
    fn pixels_become_elements() {
        let colours = [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        check([1, 2, 2, 3], WHOLE, (1.0, 0.0), &colours);
        check([1, 2, 2, 3], WHOLE, (2.0, -1.0), &colours.map(|c| 2.0 * c - 1.0));
        check([1, 2, 2, 1], WHOLE, (1.0, 0.0), &[0.0, 0.299, 0.587, 0.114]);
        // All four in the middle.
        check([1, 1, 1, 4], WHOLE, (1.0, 0.0), &[0.25, 0.25, 0.25, 1.0]);
    }

    #[test]
    fn a_region_is_cut_out_and_black_outside() {
        // The lower right pixel, and as much beyond it.
        check([1, 2, 2, 3], [0.5, 0.5, 1.0, 1.0], (1.0, 0.0), &{
            let mut pixels = [0.0; 12];
            pixels[2] = 1.0;
            pixels
        });
        // Between black and red, two thirds of the way: centers of the tensor's pixels at 0.25 and at 0.75 of the
        // upper row, and between them.
        check([1, 1, 3, 1], [0.125, 0.0, 0.75, 0.5], (1.0, 0.0), &[0.0, 0.1495, 0.299]);
    }

    #[test]
    fn what_cannot_be_a_tensor_is_an_error() {
        let Some(delegate) = delegate() else { return };
        for shape in [[2, 4, 4, 3], [1, 4, 4, 2], [1, 0, 4, 3], [1, 1 << 20, 1 << 20, 3]] {
            let error = delegate.texture_input(shape, [1.0; 4], [0.0; 4]).map(drop).unwrap_err();
            assert!(matches!(error, Error::InvalidInput(_)), "{error}");
        }
        let mut input = delegate.texture_input([1, 2, 2, 3], [1.0; 4], [0.0; 4]).unwrap();
        assert!(input.set_region([0.0, f32::NAN, 1.0, 1.0]).is_err());
        let unbound = picture(delegate, wgpu::TextureUsages::COPY_SRC);
        let error = input.convert(&unbound).unwrap_err().to_string();
        assert!(error.contains("TEXTURE_BINDING"), "{error}");
    }
}
