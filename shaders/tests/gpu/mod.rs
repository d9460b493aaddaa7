//! Runs kernels on the machine's adapter, for tests and benches.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use delegraph_shaders::{Access, Binding, Caps, Kernel, VariantKey};
use wgpu::util::DeviceExt as _;

/// A device with the pipelines compiled so far.
pub struct Gpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub caps: Caps,
    pub adapter: String,
    /// Whether the device has matrix units that kernels can use for operands of 16 bits.
    pub matrices: bool,
    pipelines: Mutex<HashMap<VariantKey, wgpu::ComputePipeline>>,
}

/// The environment variable with a part of the name of the adapter to run on. Without it, any adapter is used.
const ADAPTER: &str = "DELEGRAPH_ADAPTER";

/// The environment variable with which kernels are compiled as by a delegate with `trusted_shaders`, without checks.
const TRUSTED: &str = "DELEGRAPH_TRUSTED";

/// The adapter's device; `None`, with the reason printed, where the machine has no adapter.
///
/// # Panics
/// If [`ADAPTER`] is set and that adapter cannot be opened.
pub fn gpu() -> Option<&'static Gpu> {
    static GPU: OnceLock<Option<Gpu>> = OnceLock::new();
    GPU.get_or_init(|| {
        let name = std::env::var(ADAPTER).ok().filter(|name| !name.is_empty());
        match (Gpu::open(name.as_deref()), name) {
            (Ok(gpu), _) => Some(gpu),
            (Err(why), Some(name)) => panic!("adapter {name:?}: {why}"),
            (Err(why), None) => {
                eprintln!("skipped: no adapter to run kernels on: {why}");
                None
            }
        }
    })
    .as_ref()
}

/// Finds the adapter whose name contains `name`, without regard to case.
fn adapter(instance: &wgpu::Instance, name: Option<&str>) -> Result<wgpu::Adapter, String> {
    let Some(name) = name else {
        let any = wgpu::RequestAdapterOptions::default();
        return pollster::block_on(instance.request_adapter(&any)).map_err(|e| e.to_string());
    };
    let all = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    let is_named =
        |adapter: &wgpu::Adapter| adapter.get_info().name.to_lowercase().contains(&name.to_lowercase());
    all.into_iter().find(is_named).ok_or_else(|| "no adapter has such a name".into())
}

/// A kernel with its buffers bound.
pub struct Bound {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    output: wgpu::Buffer,
    dispatch: [u32; 3],
}

impl Gpu {
    fn open(name: Option<&str>) -> Result<Self, String> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapter = adapter(&instance, name)?;
        let info = adapter.get_info();
        let offered = adapter.limits();
        let matrices = adapter.features().contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX);
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            required_features: adapter.features()
                & (wgpu::Features::SUBGROUP
                    | wgpu::Features::SHADER_F16
                    | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX),
            // SAFETY: the experimental feature is used by kernels whose texts wgpu validates.
            experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
            required_limits: wgpu::Limits {
                max_storage_buffer_binding_size: offered.max_storage_buffer_binding_size,
                max_compute_workgroup_storage_size: offered.max_compute_workgroup_storage_size,
                ..Default::default()
            },
            ..Default::default()
        }))
        .map_err(|e| e.to_string())?;
        let mut caps = Caps::WEBGPU.with_software(info.device_type == wgpu::DeviceType::Cpu);
        caps.max_workgroup_storage = offered.max_compute_workgroup_storage_size;
        caps.f16 = adapter.features().contains(wgpu::Features::SHADER_F16);
        if adapter.features().contains(wgpu::Features::SUBGROUP) {
            let constant = info.subgroup_min_size == info.subgroup_max_size;
            caps = caps.with_subgroups(if constant { info.subgroup_min_size } else { 0 });
        }
        Ok(Self {
            device,
            queue,
            caps,
            matrices,
            adapter: format!("{} ({})", info.name, info.driver_info),
            pipelines: Mutex::default(),
        })
    }

    fn pipeline(&self, kernel: &Kernel) -> wgpu::ComputePipeline {
        let mut pipelines = self.pipelines.lock().unwrap();
        let make = || {
            let source = kernel.variant.source().unwrap();
            let descriptor = wgpu::ShaderModuleDescriptor {
                label: Some(kernel.variant.key.as_str()),
                source: wgpu::ShaderSource::Wgsl(source.as_ref().into()),
            };
            let module = if std::env::var_os(TRUSTED).is_some() {
                // SAFETY: the uniform block or a constant bounds the loops of every source. Specs check the shapes that
                // bound the indices of `delegraph_shaders`; other sources have dispatches that fit their buffers.
                // Without [`TRUSTED`], all of them run with all checks on.
                unsafe {
                    self.device
                        .create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked())
                }
            } else {
                self.device.create_shader_module(descriptor)
            };
            let entries: Vec<_> = (0..)
                .zip(&kernel.variant.bindings)
                .map(|(binding, role)| wgpu::BindGroupLayoutEntry {
                    binding,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: wgpu::BindingType::Buffer {
                        ty: match role.access() {
                            Access::Read => wgpu::BufferBindingType::Storage { read_only: true },
                            Access::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
                            Access::Uniform => wgpu::BufferBindingType::Uniform,
                            Access::Texture => {
                                panic!("{}: textures are tested with the delegate", kernel.variant.key)
                            }
                        },
                        has_dynamic_offset: false,
                        min_binding_size: None,
                    },
                    count: None,
                })
                .collect();
            let layout = self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &entries,
            });
            let layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(kernel.variant.key.as_str()),
                layout: Some(&layout),
                module: &module,
                entry_point: Some(kernel.variant.entry),
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: std::env::var_os(TRUSTED).is_none(),
                    ..Default::default()
                },
                cache: None,
            })
        };
        pipelines.entry(kernel.variant.key.clone()).or_insert_with(make).clone()
    }

    /// Number of pipelines compiled so far.
    pub fn pipelines(&self) -> usize {
        self.pipelines.lock().unwrap().len()
    }

    /// Uploads `operands` to their bindings, and creates an output of `words` 32-bit words.
    pub fn bind(&self, kernel: &Kernel, operands: &[(Binding, &[u8])], words: usize) -> Bound {
        let pipeline = self.pipeline(kernel);
        let buffer = |contents: &[u8], usage| {
            // A tensor may be empty, but not a binding.
            let contents = if contents.is_empty() { &[0; 16] } else { contents };
            self.device.create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents, usage })
        };
        let output = buffer(
            // Not zero, so that elements that the kernel does not write are noticed.
            &[0x7b].repeat(words.max(4) * 4),
            wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC,
        );
        let buffers: Vec<_> = kernel
            .variant
            .bindings
            .iter()
            .map(|role| match role {
                Binding::Output => output.clone(),
                Binding::Uniform => buffer(&kernel.uniform, wgpu::BufferUsages::UNIFORM),
                _ => {
                    let found = operands.iter().find(|(of, _)| of == role);
                    let contents = found.unwrap_or_else(|| panic!("{}: no {role:?}", kernel.variant.key)).1;
                    buffer(contents, wgpu::BufferUsages::STORAGE)
                }
            })
            .collect();
        let entries: Vec<_> = (0..)
            .zip(&buffers)
            .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Bound { pipeline, group, output, dispatch: kernel.dispatch }
    }

    /// Records the dispatch `times` times into one pass, submits it and waits. Returns the seconds taken.
    pub fn dispatch(&self, bound: &Bound, times: u32) -> f64 {
        let start = Instant::now();
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&bound.pipeline);
            pass.set_bind_group(0, &bound.group, &[]);
            for _ in 0..times {
                pass.dispatch_workgroups(bound.dispatch[0], bound.dispatch[1], bound.dispatch[2]);
            }
        }
        self.queue.submit([encoder.finish()]);
        self.device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        start.elapsed().as_secs_f64()
    }

    /// The first `words` words of the output.
    pub fn read<T: bytemuck::Pod>(&self, bound: &Bound, words: usize) -> Vec<T> {
        let size = (words.max(1) * 4) as u64;
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&bound.output, 0, &staging, 0, size);
        self.queue.submit([encoder.finish()]);
        staging.map_async(wgpu::MapMode::Read, .., |result| result.unwrap());
        self.device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        let bytes = staging.get_mapped_range(..).unwrap().to_vec();
        let mut values: Vec<T> = bytemuck::pod_collect_to_vec(&bytes);
        values.truncate(words);
        values
    }

    /// Runs the kernel once, and returns the `words` words of the output.
    pub fn run<T: bytemuck::Pod>(
        &self,
        kernel: &Kernel,
        operands: &[(Binding, &[u8])],
        words: usize,
    ) -> Vec<T> {
        let bound = self.bind(kernel, operands, words);
        self.dispatch(&bound, 1);
        self.read(&bound, words)
    }
}

/// Numbers in [-1, 1), equal on all machines.
pub fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

/// Bytes of a slice.
pub fn bytes(values: &[f32]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Fails unless every value is within 1e-5 plus 1e-4 times the largest finite expected magnitude. NaN matches NaN.
#[track_caller]
pub fn assert_close(what: &str, actual: &[f32], expected: &[f32]) {
    assert_eq!(actual.len(), expected.len(), "{what}: length");
    let largest = expected.iter().filter(|v| v.is_finite()).fold(0.0_f32, |m, v| m.max(v.abs()));
    let tolerance = 1e-5 + 1e-4 * largest;
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        let close = approx::abs_diff_eq!(*a, *e, epsilon = tolerance) || a == e || (a.is_nan() && e.is_nan());
        assert!(close, "{what}: element {i} is {a}, expected {e} (tolerance {tolerance})");
    }
}

/// Every multi-index of a shape, in row-major order.
pub fn indices(shape: &[u32]) -> Vec<Vec<u32>> {
    shape.iter().fold(vec![vec![]], |done, extent| {
        done.iter().flat_map(|head| (0..*extent).map(move |i| [head.as_slice(), &[i]].concat())).collect()
    })
}

/// Position of a multi-index in a dense tensor.
pub fn flat(shape: &[u32], index: &[u32]) -> usize {
    shape.iter().zip(index).fold(0, |flat, (extent, i)| flat * *extent as usize + *i as usize)
}

/// Elements of a shape.
pub fn count(shape: &[u32]) -> usize {
    shape.iter().product::<u32>() as usize
}
