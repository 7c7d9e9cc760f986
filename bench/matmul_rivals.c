/* matmul_rivals.c - see matmul_rivals.h. */
#include "bench/matmul_rivals.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif
#ifdef HAVE_OPENBLAS
#include <cblas.h>
#endif
#ifdef HAVE_OPENMP
#include <omp.h>
#endif

struct rival {
    rival_product p;
    bool onednn;
#ifdef HAVE_ONEDNN
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[3]; /* source, weights, destination */
#endif
};

void rivals_set_threads(int threads)
{
#ifdef HAVE_OPENMP
    omp_set_num_threads(threads);
#endif
#ifdef HAVE_OPENBLAS
    openblas_set_num_threads(threads);
#endif
    (void)threads;
}

#ifdef HAVE_ONEDNN
static dnnl_memory_desc_t matrix(int64_t rows, int64_t cols, bool turned, bool bf16)
{
    dnnl_memory_desc_t desc;
    const dnnl_dims_t dims = { rows, cols };
    const dnnl_dims_t strides = { turned ? 1 : cols, turned ? rows : 1 };
    dnnl_memory_desc_init_by_strides(&desc, 2, dims, bf16 ? dnnl_bf16 : dnnl_f32, strides);
    return desc;
}

static dnnl_memory_t reordered(rival *r, const dnnl_memory_desc_t *from,
                               const dnnl_memory_desc_t *to)
{
    dnnl_memory_t plain, packed;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t reorder;
    dnnl_memory_create(&plain, from, r->engine, (void *)r->p.b);
    dnnl_memory_create(&packed, to, r->engine, DNNL_MEMORY_ALLOCATE);
    dnnl_reorder_primitive_desc_create(&pd, from, r->engine, to, r->engine, NULL);
    dnnl_primitive_create(&reorder, pd);
    const dnnl_exec_arg_t args[2] = { { DNNL_ARG_FROM, plain }, { DNNL_ARG_TO, packed } };
    dnnl_primitive_execute(reorder, r->stream, 2, args);
    dnnl_stream_wait(r->stream);
    dnnl_primitive_destroy(reorder);
    dnnl_primitive_desc_destroy(pd);
    dnnl_memory_destroy(plain);
    return packed;
}

static bool onednn_init(rival *r, bool packed)
{
    const rival_product *p = &r->p;
    const dnnl_memory_desc_t a = matrix(p->m, p->k, p->a_km, p->bf16);
    const dnnl_memory_desc_t b = matrix(p->k, p->n, p->b_nk, p->bf16);
    const dnnl_memory_desc_t c = matrix(p->m, p->n, false, p->out_bf16);
    dnnl_memory_desc_t any = b;
    const dnnl_dims_t dims = { p->k, p->n };
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    if (packed)
        dnnl_memory_desc_init_by_tag(&any, 2, dims, p->bf16 ? dnnl_bf16 : dnnl_f32,
                                     dnnl_format_tag_any);
    if (dnnl_engine_create(&r->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&r->stream, r->engine, dnnl_stream_default_flags) != dnnl_success ||
        dnnl_matmul_desc_init(&desc, &a, &any, NULL, &c) != dnnl_success ||
        dnnl_primitive_desc_create(&pd, &desc, NULL, r->engine, NULL) != dnnl_success)
        return false;
    const dnnl_memory_desc_t *w = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    dnnl_primitive_create(&r->primitive, pd);
    dnnl_memory_create(&r->memory[0], &a, r->engine, (void *)p->a);
    if (packed)
        r->memory[1] = reordered(r, &b, w);
    else
        dnnl_memory_create(&r->memory[1], &b, r->engine, (void *)p->b);
    dnnl_memory_create(&r->memory[2], &c, r->engine, p->c);
    dnnl_primitive_desc_destroy(pd);
    return true;
}

rival *rival_onednn(const rival_product *product, bool packed)
{
    rival *r = calloc(1, sizeof *r);
    r->p = *product;
    r->onednn = true;
    if (!onednn_init(r, packed)) {
        free(r);
        return NULL;
    }
    return r;
}
#else
rival *rival_onednn(const rival_product *product, bool packed)
{
    (void)product, (void)packed;
    return NULL;
}
#endif

rival *rival_openblas(const rival_product *product)
{
#ifdef HAVE_OPENBLAS
    if (product->bf16)
        return NULL; /* its sbgemm converts through float on this kind of machine */
    rival *r = calloc(1, sizeof *r);
    r->p = *product;
    return r;
#else
    (void)product;
    return NULL;
#endif
}

void rival_run(rival *r)
{
#ifdef HAVE_ONEDNN
    if (r->onednn) {
        const dnnl_exec_arg_t args[3] = { { DNNL_ARG_SRC, r->memory[0] },
                                          { DNNL_ARG_WEIGHTS, r->memory[1] },
                                          { DNNL_ARG_DST, r->memory[2] } };
        dnnl_primitive_execute(r->primitive, r->stream, 3, args);
        dnnl_stream_wait(r->stream);
        return;
    }
#endif
#ifdef HAVE_OPENBLAS
    const rival_product *p = &r->p;
    cblas_sgemm(CblasRowMajor, p->a_km ? CblasTrans : CblasNoTrans,
                p->b_nk ? CblasTrans : CblasNoTrans, (int)p->m, (int)p->n, (int)p->k, 1.0f, p->a,
                (int)(p->a_km ? p->m : p->k), p->b, (int)(p->b_nk ? p->k : p->n), 0.0f, p->c,
                (int)p->n);
#endif
}

void rival_free(rival *r)
{
    if (r == NULL)
        return;
#ifdef HAVE_ONEDNN
    if (r->onednn) {
        dnnl_primitive_destroy(r->primitive);
        for (int i = 0; i < 3; i++)
            dnnl_memory_destroy(r->memory[i]);
        dnnl_stream_destroy(r->stream);
        dnnl_engine_destroy(r->engine);
    }
#endif
    free(r);
}
