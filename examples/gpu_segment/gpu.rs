//! The graphics side of the application: a device, textures, and its own shaders.

use delegraph::delegate_wgpu::wgpu;
use image::RgbaImage;

use crate::Result;

const FORMAT: wgpu::TextureFormat = wgpu::TextureFormat::Rgba8Unorm;

/// The application's device.
pub(crate) struct Gpu {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) info: wgpu::AdapterInfo,
}

impl Gpu {
    pub(crate) fn open() -> Result<Self> {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.flags = wgpu::InstanceFlags::empty();
        let instance = wgpu::Instance::new(descriptor);
        let adapter = pollster::block_on(instance.request_adapter(&Default::default()))?;
        let (device, queue) = pollster::block_on(adapter.request_device(&Default::default()))?;
        Ok(Gpu { device, queue, info: adapter.get_info() })
    }

    fn texture(&self, (width, height): (u32, u32), usage: wgpu::TextureUsages) -> wgpu::Texture {
        self.device.create_texture(&wgpu::TextureDescriptor {
            label: None,
            size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: FORMAT,
            usage,
            view_formats: &[],
        })
    }

    /// Returns a photo as a texture, like the output of a camera or a video decoder.
    pub(crate) fn upload(&self, photo: &RgbaImage) -> wgpu::TextureView {
        let usage = wgpu::TextureUsages::TEXTURE_BINDING | wgpu::TextureUsages::COPY_DST;
        let texture = self.texture(photo.dimensions(), usage);
        let bytes_per_row = Some(4 * photo.width());
        let layout = wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row, rows_per_image: None };
        self.queue.write_texture(texture.as_image_copy(), photo.as_raw(), layout, texture.size());
        texture.create_view(&Default::default())
    }

    /// Returns a buffer that the delegate copies a tensor to, and that shaders read.
    pub(crate) fn buffer(&self, size: u64) -> wgpu::Buffer {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let descriptor =
            wgpu::BufferDescriptor { label: Some("mask"), size, usage, mapped_at_creation: false };
        self.device.create_buffer(&descriptor)
    }
}

/// The application's shader, and the picture that it makes.
pub(crate) struct Compositor {
    pipeline: wgpu::ComputePipeline,
    params: wgpu::Buffer,
    picture: wgpu::Texture,
}

impl Compositor {
    pub(crate) fn new(gpu: &Gpu, size: (u32, u32)) -> Self {
        let module = gpu.device.create_shader_module(wgpu::include_wgsl!("composite.wgsl"));
        let pipeline = gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
        let params = gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 24,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let usage = wgpu::TextureUsages::STORAGE_BINDING | wgpu::TextureUsages::COPY_SRC;
        Compositor { pipeline, params, picture: gpu.texture(size, usage) }
    }

    /// Draws the picture. `region` is the region of the photo that the mask covers.
    pub(crate) fn compose(
        &self,
        gpu: &Gpu,
        photo: &wgpu::TextureView,
        mask: &wgpu::Buffer,
        mask_size: [u32; 2],
        region: [f32; 4],
    ) {
        let words = mask_size.into_iter().chain(region.map(f32::to_bits));
        let params: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        gpu.queue.write_buffer(&self.params, 0, &params);
        let picture = self.picture.create_view(&Default::default());
        let resources = [
            wgpu::BindingResource::TextureView(photo),
            mask.as_entire_binding(),
            wgpu::BindingResource::TextureView(&picture),
            self.params.as_entire_binding(),
        ];
        let entry = |(binding, resource)| wgpu::BindGroupEntry { binding, resource };
        let group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &(0..).zip(resources).map(entry).collect::<Vec<_>>(),
        });
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(self.picture.width().div_ceil(8), self.picture.height().div_ceil(8), 1);
        drop(pass);
        gpu.queue.submit([encoder.finish()]);
    }

    /// Returns the finished picture, for its file.
    pub(crate) fn read(&self, gpu: &Gpu) -> Result<RgbaImage> {
        let (width, height) = (self.picture.width(), self.picture.height());
        let stride = (4 * width).next_multiple_of(wgpu::COPY_BYTES_PER_ROW_ALIGNMENT);
        let staging = gpu.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: u64::from(stride) * u64::from(height),
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = gpu.device.create_command_encoder(&Default::default());
        let layout =
            wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(stride), rows_per_image: None };
        let to = wgpu::TexelCopyBufferInfo { buffer: &staging, layout };
        encoder.copy_texture_to_buffer(self.picture.as_image_copy(), to, self.picture.size());
        gpu.queue.submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., drop);
        gpu.device.poll(wgpu::PollType::wait_indefinitely())?;
        let rows = staging.get_mapped_range(..)?;
        let pixels: Vec<u8> =
            rows.chunks(stride as usize).flat_map(|row| &row[..4 * width as usize]).copied().collect();
        RgbaImage::from_raw(width, height, pixels).ok_or_else(|| "a picture of another size".into())
    }
}
