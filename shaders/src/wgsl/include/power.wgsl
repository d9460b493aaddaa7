    // x to the power of y. For a negative x: the sign by the parity of y, and NaN (as its logarithm is) unless y is
    // an integer. For zero, drivers differ.
    let of_zero = select(T(0.0), 1.0 / abs(x), y < T(0.0));
    let positive = select(pow(abs(x), y), of_zero, x == T(0.0));
    let size = select(positive, T(1.0), y == T(0.0));
    let odd = abs(y - 2.0 * floor(y * 0.5)) == T(1.0);
    let of_negative = select(select(size, -size, odd), log2(x), y != floor(y));
    return select(size, of_negative, x < T(0.0));
