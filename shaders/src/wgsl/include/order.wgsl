// The order of elements: an integer that is larger for an element that sorts earlier. NaN sorts
// last, and the two zeros are equal.
fn order(word: u32) -> i32 {
#if FLOAT
    let size = word & 0x7fffffffu;
    if size > 0x7f800000u {
        return -2147483647 - 1;
    }
    let rank = select(i32(size), -i32(size), word != size);
#else
    let rank = bitcast<i32>(word);
#endif
#if LARGEST
    return rank;
#else
    return -1 - rank;
#endif
}

// An element's order and its index; of equal elements, the one of lower index sorts first.
struct P {
    order: i32,
    index: u32,
}

const NONE = P(-2147483647 - 1, 0xffffffffu);

fn before(x: P, y: P) -> bool {
    return x.order > y.order || (x.order == y.order && x.index < y.index);
}

fn combine(x: P, y: P, how: u32) -> P {
    if before(y, x) {
        return y;
    }
    return x;
}
