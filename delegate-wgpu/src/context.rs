//! What all kernels of a delegate share, and what all delegates on a device do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use delegraph_shaders::{Caps, Kernel};

use crate::ahead::{Ahead, Running};
use crate::cache::CacheFile;
use crate::custom::WgpuOp;
use crate::later::{Later, Need};
use crate::options::WgpuOptions;
use crate::pipelines::Pipelines;
use crate::twins::Twins;
use crate::upload::Uploads;

/// How long news of a device that has finished may take: where several threads use it, another one may be about to
/// deliver them.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A device with what all kernels of a delegate share.
pub(crate) struct Context {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    facts: Arc<Facts>,
    /// Nanoseconds per tick, where the device measures time.
    pub timestamp_period: Option<f32>,
    /// Leave bounds and loop checks out of shaders.
    trusted: bool,
    /// Measure every dispatch by itself.
    pub profile: bool,
    /// Helps first runs, where that gains something.
    ahead: Option<Ahead>,
    /// Why the device was lost, once it is.
    lost: Arc<Mutex<Option<String>>>,
    shared: Arc<Shared>,
    /// For tests: no buffer can be had.
    #[cfg(test)]
    pub full: AtomicBool,
}

/// What lowering wants to know of a device and its delegate.
pub(crate) struct Facts {
    pub caps: Caps,
    pub limits: wgpu::Limits,
    /// Custom ops of the application.
    pub custom_ops: Vec<WgpuOp>,
}

impl std::ops::Deref for Context {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

/// What all delegates on a device have in common.
struct Shared {
    device: wgpu::Device,
    /// Before what it works for, so that it ends first.
    later: Later,
    pipelines: Arc<Pipelines>,
    uploads: Uploads,
    /// The last, when nobody makes texts any more.
    _texts: Texts,
}

impl Shared {
    /// That of `device`, made where no delegate is on it yet.
    fn of(device: &wgpu::Device, info: &wgpu::AdapterInfo, options: &WgpuOptions) -> Arc<Self> {
        static DEVICES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|shared| shared.strong_count() > 0);
        let found = devices.iter().filter_map(Weak::upgrade).find(|shared| same(&shared.device, device));
        found.unwrap_or_else(|| {
            let file = CacheFile::new(&options.pipeline_cache, info);
            let pipelines = Arc::new(Pipelines::new(device, file));
            let (later, uploads) = Default::default();
            let shared =
                Arc::new(Shared { device: device.clone(), later, pipelines, uploads, _texts: Texts });
            devices.push(Arc::downgrade(&shared));
            shared
        })
    }
}

/// Where the memory of kernels' texts is given back.
struct Texts;

impl Drop for Texts {
    fn drop(&mut self) {
        delegraph_shaders::forget_texts();
    }
}

/// Whether these are one device. wgpu's own comparison says so of devices of two instances, too.
#[cfg(not(any(target_arch = "wasm32", target_vendor = "apple")))]
fn same(a: &wgpu::Device, b: &wgpu::Device) -> bool {
    let address = |device: &wgpu::Device| {
        // SAFETY: nothing is done with it.
        let device = unsafe { device.as_hal::<wgpu::hal::api::Vulkan>() };
        device.map(|device| std::ptr::from_ref(&*device).addr())
    };
    a == b && address(a).is_some_and(|a| Some(a) == address(b))
}

/// There is no way to tell: only clones of a delegate share what they have.
#[cfg(any(target_arch = "wasm32", target_vendor = "apple"))]
fn same(_: &wgpu::Device, _: &wgpu::Device) -> bool {
    false
}

impl Context {
    pub(crate) fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: &wgpu::AdapterInfo,
        options: &WgpuOptions,
        ahead: Option<Ahead>,
    ) -> Self {
        let (limits, features) = (device.limits(), device.features());
        let caps = Caps {
            max_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
            max_invocations_per_workgroup: limits.max_compute_invocations_per_workgroup,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_storage_binding: limits.max_storage_buffer_binding_size,
            max_workgroup_storage: limits.max_compute_workgroup_storage_size,
            f16: features.contains(wgpu::Features::SHADER_F16),
            subgroups: features.contains(wgpu::Features::SUBGROUP),
            subgroup_size: if info.subgroup_min_size == info.subgroup_max_size {
                info.subgroup_min_size
            } else {
                0
            },
            software: info.device_type == wgpu::DeviceType::Cpu,
        };
        let measures = features.contains(wgpu::Features::TIMESTAMP_QUERY);
        Context {
            timestamp_period: measures.then(|| queue.get_timestamp_period()),
            shared: Shared::of(&device, info, options),
            trusted: options.trusted_shaders,
            profile: options.profile,
            facts: Arc::new(Facts { caps, limits, custom_ops: options.custom_ops.clone() }),
            ahead,
            lost: Arc::default(),
            device,
            queue,
            #[cfg(test)]
            full: false.into(),
        }
    }

    /// Notes when the device is lost. Only for a device that nobody else has: there is one callback per device.
    pub(crate) fn watch(&self) {
        let lost = Arc::clone(&self.lost);
        self.device.set_device_lost_callback(move |reason, message| {
            *lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{reason:?}: {message}"));
        });
    }

    /// Why the device was lost, if it is.
    pub(crate) fn lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `f` and returns the first error that the device reports meanwhile, on this thread.
    pub(crate) fn checked<T>(&self, f: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
        checked(&self.device, f)
    }

    /// Waits until the device has run `submission` and everything before it.
    ///
    /// # Errors
    /// Why it never will.
    pub(crate) fn wait(&self, submission: wgpu::SubmissionIndex) -> Result<(), String> {
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        match self.poll(wait) {
            Ok(()) => Ok(()),
            Err(said) => Err(self.unfinished(said)),
        }
    }

    /// Why the device did not finish, other than what it `said`.
    pub(crate) fn unfinished(&self, said: Option<String>) -> String {
        // Whether the device is lost is told in `poll`, after what it was asked for.
        let _ = self.poll(wgpu::PollType::Poll);
        match self.gone() {
            Some(reason) => format!("the device was lost ({reason})"),
            None => said.unwrap_or_else(|| "the device did not finish".into()),
        }
    }

    /// After a failure: why the device was lost, if it is. A device of the application tells only the application, so it
    /// is tried out.
    pub(crate) fn gone(&self) -> Option<String> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let descriptor =
            wgpu::BufferDescriptor { label: Some("probe"), size: 4, usage, mapped_at_creation: false };
        let refuses = || self.checked(|| refuses_to_map(&self.device.create_buffer(&descriptor)));
        self.lost().or_else(|| match refuses() {
            Ok(false) | Err(wgpu::Error::OutOfMemory { .. }) => None,
            Ok(true) | Err(_) => Some("nothing can be made on it".into()),
        })
    }

    /// What the device says where it does not do what it is asked for.
    fn poll(&self, how: wgpu::PollType) -> Result<(), Option<String>> {
        // wgpu panics in `poll` when the device is lost while it waits.
        let poll = || self.device.poll(how);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll)) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(Some(e.to_string())),
            Err(_) => Err(None),
        }
    }

    /// A buffer, or why there is none.
    pub(crate) fn create_buffer(
        &self,
        descriptor: &wgpu::BufferDescriptor<'_>,
    ) -> Result<wgpu::Buffer, wgpu::Error> {
        #[cfg(test)]
        if self.full.load(Ordering::Relaxed) {
            return Err(wgpu::Error::OutOfMemory { source: "there is no room, for a test".into() });
        }
        self.checked(|| self.device.create_buffer(descriptor))
    }

    /// Compiles the pipelines of `kernels` that are missing, on several threads, and returns those that the driver
    /// nevertheless leaves for the first run.
    pub(crate) fn compile(&self, kernels: &[Kernel]) -> Vec<Kernel> {
        let missing = self.shared.pipelines.compile(kernels, self.trusted);
        if self.ahead.is_some() { missing.into_iter().cloned().collect() } else { Vec::new() }
    }

    /// Beside a first run: compiles what [`Context::compile`] left for it, until what is returned is dropped.
    pub(crate) fn compile_ahead(&self, kernels: Vec<Kernel>) -> Option<Running> {
        self.ahead.as_ref()?.start(kernels, self.trusted)
    }

    /// For what lowers without the device.
    pub(crate) fn facts(&self) -> &Arc<Facts> {
        &self.facts
    }

    /// An interpreter that will need kernels for other sizes. Drivers of software compile a kernel when it is first run, on
    /// the cores that run it: there, nothing is to be in the way of the first result.
    pub(crate) fn need(&self) -> Arc<Need> {
        self.shared.later.need(self.caps.software)
    }

    /// Compiles what `twins` finds and is missing when there is time for it.
    pub(crate) fn compile_later(&self, twins: Twins, need: &Arc<Need>) {
        self.shared.later.compile(&self.shared.pipelines, twins, self.trusted, need);
    }

    /// Waits for what [`Context::compile_later`] was given.
    pub(crate) fn finish_compiling(&self) {
        self.shared.later.wait();
    }

    /// The pipeline that runs `kernel`.
    pub(crate) fn pipeline(&self, kernel: &Kernel) -> Result<Arc<wgpu::ComputePipeline>, wgpu::Error> {
        self.shared.pipelines.get(kernel, self.trusted)
    }

    /// How many pipelines were compiled on the device so far.
    pub(crate) fn compiled(&self) -> usize {
        self.shared.pipelines.compiled()
    }

    /// Whether both are known to be on one device.
    pub(crate) fn is_on_device_of(&self, other: &Context) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// The data that kernels on the device share.
    pub(crate) fn uploads(&self) -> &Uploads {
        &self.shared.uploads
    }
}

/// Whether the device of `buffer` does not even begin to map it: it is lost. Nobody may be using the buffer.
pub(crate) fn refuses_to_map(buffer: &wgpu::Buffer) -> bool {
    let refused = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&refused);
    buffer.map_async(wgpu::MapMode::Read, .., move |result| told.store(result.is_err(), Ordering::Relaxed));
    // Before it is taken back, which is an error for who waits for it, too.
    let refused = refused.load(Ordering::Relaxed);
    buffer.unmap();
    refused
}

/// Runs `f` and returns the first error that `device` reports meanwhile, on this thread.
pub(crate) fn checked<T>(device: &wgpu::Device, f: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
    use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
    let scopes = [Internal, OutOfMemory, Validation].map(|filter| device.push_error_scope(filter));
    let result = f();
    let [internal, memory, validation] = scopes;
    // Innermost first.
    let errors = [validation, memory, internal].map(|scope| now(scope.pop()));
    errors.into_iter().flatten().next().map_or(Ok(result), Err)
}

/// What `future` gives. It is there already on native backends, where nothing is taken from the heap to wait for it.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => pollster::block_on(future),
    }
}
