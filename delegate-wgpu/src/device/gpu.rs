//! A device that kernels run on.

#[cfg(test)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use delegraph_shaders::Caps;

use super::SharedDevice;
use super::options::{Precision, WgpuOptions};
use super::scopes::checked;
use crate::custom::WgpuOp;

/// Timeout for the notification of finished work. If several threads poll the device, another thread may be about to
/// deliver the notification.
pub(crate) const POLL_TIMEOUT: Duration = Duration::from_secs(10);

/// A device as one delegate uses it; all kernels of the delegate share it.
pub(crate) struct Gpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    caps: Arc<DeviceCaps>,
    /// Nanoseconds per tick, where the device measures time.
    pub timestamp_period: Option<f32>,
    /// Whether every dispatch is measured by itself.
    pub profile: bool,
    /// The reason why the device was lost, if it was.
    lost: Arc<Mutex<Option<String>>>,
    shared: Arc<SharedDevice>,
    /// Created on first use.
    probe: Mutex<Option<Probe>>,
    /// Set by tests to make every allocation of a buffer fail.
    #[cfg(test)]
    pub full: AtomicBool,
}

/// The properties of a device and its delegate that lowering depends on.
pub(crate) struct DeviceCaps {
    pub caps: Caps,
    pub limits: wgpu::Limits,
    /// Whether floats are stored in 16 bits.
    pub halves: bool,
    /// Whether kernels of 16-bit operands may use matrix units.
    pub matrix_units: bool,
    /// Custom ops of the application.
    pub custom_ops: Vec<WgpuOp>,
    /// Tables of the functions of quantized LSTM cells, computed when a node first needs them.
    pub cell_tables: OnceLock<[Vec<i16>; 3]>,
}

impl DeviceCaps {
    /// Returns the alignment of views in another value's memory, in bytes of 32-bit elements.
    pub(crate) fn view_alignment(&self) -> u64 {
        let alignment = u64::from(self.limits.min_storage_buffer_offset_alignment);
        // Offsets in a value of 16-bit elements are half as large.
        if self.halves { alignment * 2 } else { alignment }
    }
}

impl std::ops::Deref for Gpu {
    type Target = DeviceCaps;

    fn deref(&self) -> &DeviceCaps {
        &self.caps
    }
}

impl Gpu {
    pub(crate) fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: &wgpu::AdapterInfo,
        matrix_units: bool,
        options: &WgpuOptions,
    ) -> Self {
        let (limits, features) = (device.limits(), device.features());
        let mut caps = Caps::WEBGPU.with_software(info.device_type == wgpu::DeviceType::Cpu);
        caps.max_workgroups_per_dimension = limits.max_compute_workgroups_per_dimension;
        caps.max_invocations_per_workgroup = limits.max_compute_invocations_per_workgroup;
        caps.max_storage_buffers = limits.max_storage_buffers_per_shader_stage;
        caps.max_storage_binding = limits.max_storage_buffer_binding_size;
        caps.max_workgroup_storage = limits.max_compute_workgroup_storage_size;
        caps.f16 = features.contains(wgpu::Features::SHADER_F16);
        if features.contains(wgpu::Features::SUBGROUP) {
            let constant = info.subgroup_min_size == info.subgroup_max_size;
            caps = caps.with_subgroups(if constant { info.subgroup_min_size } else { 0 });
        }
        let measures = features.contains(wgpu::Features::TIMESTAMP_QUERY);
        Gpu {
            timestamp_period: measures.then(|| queue.get_timestamp_period()),
            shared: SharedDevice::of(&device),
            profile: options.profile,
            caps: Arc::new(DeviceCaps {
                halves: caps.f16
                    && match options.precision {
                        Precision::F32 => false,
                        Precision::F16 => true,
                        Precision::Auto => !caps.software,
                    },
                matrix_units,
                caps,
                limits,
                custom_ops: options.custom_ops.clone(),
                cell_tables: OnceLock::new(),
            }),
            lost: Arc::default(),
            probe: Mutex::default(),
            device,
            queue,
            #[cfg(test)]
            full: false.into(),
        }
    }

    /// Records when the device is lost. Only for devices that this delegate opened, since a device has a single
    /// callback.
    pub(crate) fn watch(&self) {
        let lost = Arc::clone(&self.lost);
        self.device.set_device_lost_callback(move |reason, message| {
            *lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{reason:?}: {message}"));
        });
    }

    /// Returns the reason why the device was lost; `None` if it was not.
    pub(crate) fn lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs `f` and returns the first error that the device reports meanwhile, on this thread.
    pub(crate) fn checked<T>(&self, f: impl FnOnce() -> T) -> Result<T, wgpu::Error> {
        checked(&self.device, f)
    }

    /// Waits until the device has run `submission` and all earlier ones.
    ///
    /// # Errors
    /// The reason why the device did not finish. Always fails in a browser, where a page cannot wait.
    pub(crate) fn wait(&self, submission: wgpu::SubmissionIndex) -> Result<(), String> {
        if cfg!(target_arch = "wasm32") {
            return Err("a page cannot wait for the device; `invoke_async` does not".into());
        }
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        self.poll(wait).map(drop).map_err(|message| self.unfinished(message))
    }

    /// Returns whether the device has done `submission`, without waiting.
    ///
    /// # Errors
    /// As [`Gpu::progress`].
    pub(crate) fn is_done(&self, submission: wgpu::SubmissionIndex) -> Result<bool, String> {
        let now = wgpu::PollType::Wait { submission_index: Some(submission), timeout: Some(Duration::ZERO) };
        self.poll(now).map_err(|message| self.unfinished(message))
    }

    /// Lets wgpu deliver the callbacks of finished work, without waiting.
    ///
    /// # Errors
    /// The device cannot be polled because it is lost.
    pub(crate) fn progress(&self) -> Result<(), String> {
        self.poll(wgpu::PollType::Poll).map(drop).map_err(|message| self.unfinished(message))
    }

    /// Returns the reason why the device did not finish: its loss, or else the message of the failed poll.
    pub(crate) fn unfinished(&self, message: Option<String>) -> String {
        // wgpu delivers the notification of a lost device in `poll`, after the results of the poll itself.
        let _ = self.poll(wgpu::PollType::Poll);
        match self.gone() {
            Some(reason) => format!("the device was lost ({reason})"),
            None => message.unwrap_or_else(|| "the device did not finish".into()),
        }
    }

    /// Returns the reason why the device was lost, if it was; called after a failure. The loss of a device that the
    /// application opened is reported only to the application, so a buffer is created and mapped to find out.
    pub(crate) fn gone(&self) -> Option<String> {
        let refuses = || self.checked(|| Probe::new(&self.device).is_refused(&self.device));
        self.lost().or_else(|| match refuses() {
            Ok(false) | Err(wgpu::Error::OutOfMemory { .. }) => None,
            Ok(true) | Err(_) => Some("no buffer can be created on it".into()),
        })
    }

    /// Returns whether the device refuses to map a buffer, which means that it is lost. Does not wait.
    pub(crate) fn refuses_to_map(&self) -> bool {
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        probe.get_or_insert_with(|| Probe::new(&self.device)).is_refused(&self.device)
    }

    /// Polls the device. Returns whether it has done what `how` waits for in time. The error is the device's message,
    /// if there is one.
    fn poll(&self, how: wgpu::PollType) -> Result<bool, Option<String>> {
        // wgpu panics in `poll` when the device is lost during the wait.
        let poll = || self.device.poll(how);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll)) {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(wgpu::PollError::Timeout)) => Ok(false),
            Ok(Err(e)) => Err(Some(e.to_string())),
            Err(_) => Err(None),
        }
    }

    /// Creates a buffer, or returns the error that the device reports.
    pub(crate) fn create_buffer(
        &self,
        descriptor: &wgpu::BufferDescriptor<'_>,
    ) -> Result<wgpu::Buffer, wgpu::Error> {
        #[cfg(test)]
        if self.full.load(Ordering::Relaxed) {
            return Err(wgpu::Error::OutOfMemory { source: "set by a test".into() });
        }
        self.checked(|| self.device.create_buffer(descriptor))
    }

    /// Returns the capabilities, for code that lowers without the device.
    pub(crate) fn device_caps(&self) -> &Arc<DeviceCaps> {
        &self.caps
    }

    /// State that all delegates on the device share.
    pub(crate) fn shared(&self) -> &SharedDevice {
        &self.shared
    }

    /// Returns whether both delegates are known to be on one device.
    pub(crate) fn is_on_device_of(&self, other: &Gpu) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

/// A small buffer whose mapping shows whether the device still works.
///
/// The buffer is unmapped only after its callback. If a buffer is unmapped while another thread polls the device, wgpu
/// can mark it as mapped afterwards.
struct Probe {
    buffer: wgpu::Buffer,
    state: Arc<AtomicU8>,
}

/// States of a [`Probe`].
const IDLE: u8 = 0;
const PENDING: u8 = 1;
const MAPPED: u8 = 2;
const REFUSED: u8 = 3;

impl Probe {
    fn new(device: &wgpu::Device) -> Self {
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("probe"),
            size: wgpu::MAP_ALIGNMENT,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        Probe { buffer, state: Arc::new(IDLE.into()) }
    }

    /// Returns whether the device refuses to map a buffer, which means that it is lost.
    fn is_refused(&mut self, device: &wgpu::Device) -> bool {
        match self.state.load(Ordering::Acquire) {
            MAPPED => self.buffer.unmap(),
            PENDING => *self = Probe::new(device),
            _ => {}
        }
        self.state.store(PENDING, Ordering::Release);
        let state = Arc::clone(&self.state);
        self.buffer.map_async(wgpu::MapMode::Read, .., move |result| {
            state.store(if result.is_ok() { MAPPED } else { REFUSED }, Ordering::Release);
        });
        self.state.load(Ordering::Acquire) == REFUSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::adapter::{any_adapter, request};

    /// While wgpu-core completes a mapping on the polling thread, a thread that unmaps the buffer can find it neither
    /// pending nor mapped.
    #[test]
    fn a_probe_is_sound_while_another_thread_polls() {
        let Some(adapter) = any_adapter() else { return };
        let (device, _queue) = pollster::block_on(request(&adapter, false)).unwrap();
        let mut probe = Probe::new(&device);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let _ = device.poll(wgpu::PollType::Poll);
                }
            });
            let refused = checked(&device, || (0..2_000).any(|_| probe.is_refused(&device)));
            ended.store(true, Ordering::Relaxed);
            assert!(!refused.unwrap());
        });
    }
}
