        if row < p.rows {
            let at = (group.z * p.rows + row) * p.columns + column;
#for c in 0..WIDTH
            let result_{{c}} = result(sum_{{c}}, column + {{c}}u);
#endfor
#if WIDTH == 1
            output[at] = finish(result_0);
#else
#if WIDTH == 2
            output[at / 2u] = finish(T(result_0, result_1));
#else
            output[at / 4u] = finish(T(result_0, result_1, result_2, result_3));
#endif
#endif
        }
