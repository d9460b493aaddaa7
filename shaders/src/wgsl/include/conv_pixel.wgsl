        if pixel < p.out_pixels {
#for c in 0..WIDTH
#if INTEGERS
            let result_{{c}} = result(sum_{{c}}, o + {{c}}u, pixel);
#else
            let result_{{c}} = sum_{{c}};
#endif
#endfor
            let at = (pixel * p.out_c + o) / {{WIDTH}}u;
#if WIDTH == 1
            output[at] = finish(result_0, at, o);
#else
#if WIDTH == 2
            output[at] = finish(T(result_0, result_1), at, o / 2u);
#else
            output[at] = finish(T(result_0, result_1, result_2, result_3), at, o / 4u);
#endif
#endif
        }
