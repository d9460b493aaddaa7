//! State that all delegates on one device share.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A device with the state that all delegates on it share. Dropped with the last delegate or buffer on the device.
pub(crate) struct SharedDevice {
    /// One entry per type; see [`SharedDevice::state`]. Declared before the device, which the states use until they
    /// are dropped.
    states: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
    device: wgpu::Device,
}

impl SharedDevice {
    /// Returns the state of `device`, and creates it for the first delegate on the device.
    pub(super) fn of(device: &wgpu::Device) -> Arc<Self> {
        static DEVICES: Mutex<Vec<Weak<SharedDevice>>> = Mutex::new(Vec::new());
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|shared| shared.strong_count() > 0);
        let found = devices.iter().filter_map(Weak::upgrade).find(|shared| same(&shared.device, device));
        found.unwrap_or_else(|| {
            let shared = Arc::new(SharedDevice { states: Mutex::default(), device: device.clone() });
            devices.push(Arc::downgrade(&shared));
            shared
        })
    }

    /// Returns the device's state of type `T`; `make` creates it on the first request. `make` must not request another
    /// state.
    pub(crate) fn state<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let found = states.iter().find_map(|state| Arc::clone(state).downcast().ok());
        found.unwrap_or_else(|| {
            let made = Arc::new(make());
            states.push(Arc::clone(&made) as Arc<dyn Any + Send + Sync>);
            made
        })
    }
}

/// Returns whether `a` and `b` are the same device. wgpu's own comparison also returns true for devices of two
/// instances. Devices of backends other than Vulkan cannot be compared: only clones of a delegate share their state.
#[cfg(not(any(target_arch = "wasm32", target_vendor = "apple")))]
fn same(a: &wgpu::Device, b: &wgpu::Device) -> bool {
    let address = |device: &wgpu::Device| {
        // SAFETY: the handle is only compared by its address; nothing is called on it or destroyed through it.
        let device = unsafe { device.as_hal::<wgpu::hal::api::Vulkan>() };
        device.map(|device| std::ptr::from_ref(&*device).addr())
    };
    a == b && address(a).is_some_and(|a| Some(a) == address(b))
}

/// In a browser, clones of a device are equal, and no others.
#[cfg(target_arch = "wasm32")]
fn same(a: &wgpu::Device, b: &wgpu::Device) -> bool {
    a == b
}

/// Devices cannot be compared on this platform: only clones of a delegate share state.
#[cfg(target_vendor = "apple")]
fn same(_: &wgpu::Device, _: &wgpu::Device) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::device::adapter::{any_adapter, request};

    #[test]
    fn a_state_is_created_once_per_device_and_type_and_dropped_with_the_device() {
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let Some(adapter) = any_adapter() else { return };
        let (device, _) = pollster::block_on(request(&adapter, false)).unwrap();
        let dropped = Arc::new(AtomicUsize::new(0));
        let shared = SharedDevice::of(&device);
        let one = shared.state(|| Counted(Arc::clone(&dropped)));
        let other = shared.state(|| -> Counted { panic!("the state exists") });
        assert!(Arc::ptr_eq(&one, &other));
        assert_eq!(*shared.state(|| 7_u32), 7);
        drop((one, other));
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        drop(shared);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        let again = SharedDevice::of(&device);
        assert_eq!(*again.state(|| 8_u32), 8);
    }
}
