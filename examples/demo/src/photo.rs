//! Photos in and out of tensors.

use image::imageops::{self, FilterType};
use image::{Rgb, RgbImage};

/// The placement of a photo in a model's square input: scaled to fit, centred, with black bars.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fit {
    /// Width and height of the square, in pixels.
    pub(crate) size: u32,
    /// Square pixels per photo pixel.
    scale: f32,
    left: f32,
    top: f32,
}

impl Fit {
    /// Fits a photo of `width` by `height` pixels into a square of `size`.
    pub(crate) fn new(width: u32, height: u32, size: u32) -> Self {
        let scale = size as f32 / width.max(height).max(1) as f32;
        let margin = |length: u32| ((size as f32 - length as f32 * scale) / 2.0).floor().max(0.0);
        Fit { size, scale, left: margin(width), top: margin(height) }
    }

    /// Returns the photo pixel of a point in the square, whose sides are 1 long.
    pub(crate) fn to_photo(self, [x, y]: [f32; 2]) -> [f32; 2] {
        let size = self.size as f32;
        [(x * size - self.left) / self.scale, (y * size - self.top) / self.scale]
    }

    /// Returns the square's pixel of a point in the photo, in pixels. Pixel centres are at halves.
    pub(crate) fn to_square(self, [x, y]: [f32; 2]) -> [f32; 2] {
        [x * self.scale + self.left, y * self.scale + self.top]
    }

    /// Returns the photo as `[1, size, size, 3]`; `value` converts a byte to an input value.
    pub(crate) fn tensor(self, photo: &RgbImage, value: impl Fn(f32) -> f32) -> Vec<f32> {
        let scaled = |length: u32| ((length as f32 * self.scale).round() as u32).clamp(1, self.size);
        let (width, height) = (scaled(photo.width()), scaled(photo.height()));
        let small = imageops::resize(photo, width, height, FilterType::Triangle);
        let mut square = RgbImage::from_pixel(self.size, self.size, Rgb([0; 3]));
        imageops::replace(&mut square, &small, self.left as i64, self.top as i64);
        square.as_raw().iter().map(|&v| value(f32::from(v))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_photo_is_centred_and_padded() {
        let photo = RgbImage::from_pixel(40, 20, Rgb([255; 3]));
        let fit = Fit::new(40, 20, 8);
        let tensor = fit.tensor(&photo, |v| v / 255.0);
        let row = |y: usize| tensor[y * 8 * 3..][..8 * 3].iter().sum::<f32>();
        assert_eq!((0..8).map(row).collect::<Vec<_>>(), [0.0, 0.0, 24.0, 24.0, 24.0, 24.0, 0.0, 0.0]);
    }

    #[test]
    fn points_go_there_and_back() {
        let fit = Fit::new(40, 20, 8);
        assert_eq!(fit.to_square([20.0, 10.0]), [4.0, 4.0]);
        assert_eq!(fit.to_photo([0.5, 0.5]), [20.0, 10.0]);
        assert_eq!(fit.to_photo([0.0, 0.25]), [0.0, 0.0]);
    }
}
