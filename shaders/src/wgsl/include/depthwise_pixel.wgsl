        if column < p.out_w {
            let pixel = out_row * p.out_w + column;
            let at = pixel * out_channels + o;
#if INTEGERS
#if VEC4
            let first = o * 4u;
            let value = T(
                result(sum.x, first, pixel),
                result(sum.y, first + 1u, pixel),
                result(sum.z, first + 2u, pixel),
                result(sum.w, first + 3u, pixel),
            );
#else
            let value = result(sum, o, pixel);
#endif
#else
            let value = sum;
#endif
            output[at] = finish(value, at, o);
        }
