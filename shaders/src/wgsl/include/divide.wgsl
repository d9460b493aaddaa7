// i / d. Dividing vectors of integers is slow on many devices: estimate with floats, then put right.
fn divide(i: u32, d: u32) -> u32 {
    return i / d;
}
