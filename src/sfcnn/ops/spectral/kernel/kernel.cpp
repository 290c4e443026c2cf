// The jobs of the spectral group convolution and of the passes between, compiled once for each instruction set.
//
// Only what lies in the namespace of the instruction set may be called here: a function shared with other sources could
// be the one compiled for the wrong machine.
#include "blur.h"
#include "maps.h"
#include "mixing.h"
#include "passes.h"
#include "responses.h"

namespace sfcnn {
namespace SFCNN_ISA {

template <class Real> std::size_t make_plan(const Problem& problem, void* memory) {
    Arena arena(memory);
    Plan<Real> plan(problem), *kept = arena.take<Plan<Real>>(1);
    plan.lay_out(arena);
    if (memory) *kept = plan;
    return arena.used;
}

template <class Real> std::size_t workspace(const void* plan, int rows, int columns, bool backward) {
    std::size_t bytes;
    Workspace<Real>(*static_cast<const Plan<Real>*>(plan), rows, columns, backward, Arena(nullptr), &bytes);
    return bytes;
}

template <class Real>
void forward(const void* made, const Job& job, const void* features, const void* weights, void* result, void* memory) {
    const Plan<Real>& plan = *static_cast<const Plan<Real>*>(made);
    const Problem& p = plan.problem;
    const Workspace<Real> work(plan, job.rows, job.columns, false, Arena(memory));
    const Mixing<Real> mixing{plan};
    analyse(plan, job, static_cast<const Real*>(features), work);
    for (int first = 0; first < work.strips; first += max_groups * group) {
        const Strips strips(work, job.columns, p.kernel_size / 2, first);
        for (int channel = 0; channel < p.channels; channel += plan.block) {
            const int channels = plan.channels_from(channel);
            const Responses<Real> responses{plan, work, strips, channels};
            for (int c = 0; c < channels; c++)
                responses.respond(c, work.slabs + (channel + c) * p.orientations * work.slab);
            mixing.mix(channel, strips.groups, static_cast<const Real*>(weights), work.responses, work.mixed);
        }
        synthesize(plan, strips, work);
    }
    write_result(plan, job, work, static_cast<Real*>(result));
}

template <class Real>
void backward(const void* made, const Job& job, const void* gradient, const void* features, const void* weights,
              void* features_gradient, void* total, void* memory) {
    const Plan<Real>& plan = *static_cast<const Plan<Real>*>(made);
    const Problem& p = plan.problem;
    const Workspace<Real> work(plan, job.rows, job.columns, true, Arena(memory));
    const Mixing<Real> mixing{plan};
    if (total) analyse(plan, job, static_cast<const Real*>(features), work);
    read_gradient(plan, job, static_cast<const Real*>(gradient), work);
    std::memset(work.slab_gradients, 0, p.channels * p.orientations * work.slab * sizeof(Real));
    for (int first = 0; first < work.strips; first += max_groups * group) {
        const Strips strips(work, job.columns, p.kernel_size / 2, first);
        synthesize_adjoint(plan, strips, work);
        if (total) mixing.turn(strips.groups, work.mixed, work.turned);
        for (int channel = 0; channel < p.channels; channel += plan.block) {
            const int channels = plan.channels_from(channel);
            const Responses<Real> responses{plan, work, strips, channels};
            if (total)
                for (int c = 0; c < channels; c++)
                    responses.respond(c, work.slabs + (channel + c) * p.orientations * work.slab);
            for (int p = 0; p < plan.products; p++) {
                if (total)
                    mixing.correlate(p, channel, strips.groups, work.responses, work.turned, static_cast<Real*>(total));
                mixing.mix_adjoint(p, channel, strips.groups, static_cast<const Real*>(weights), work.mixed,
                                   work.responses);
            }
            for (int c = 0; c < channels; c++)
                responses.respond_adjoint(c, work.slab_gradients + (channel + c) * p.orientations * work.slab);
        }
    }
    analyse_adjoint(plan, job, work, static_cast<Real*>(features_gradient));
}

template <class Real> constexpr Kernel make_kernel() {
    using P = const Plan<Real>*;
    using C = const Real*;
    return {
        lanes<Real>,
        make_plan<Real>,
        workspace<Real>,
        [](const void* plan) -> std::size_t { return P(plan)->products * P(plan)->weights(); },
        [](const void* plan) -> std::size_t { return P(plan)->products * P(plan)->totals(); },
        [](const void* plan, const void* kernel, int m, bool adjoint, void* weights) {
            Mixing<Real>{*P(plan)}.pack(C(kernel), m, adjoint, static_cast<Real*>(weights));
        },
        forward<Real>,
        backward<Real>,
        [](const void* plan, const void* totals, int count, int m, void* gradient) {
            Mixing<Real>{*P(plan)}.collect(C(totals), count, m, static_cast<Real*>(gradient));
        },
        {normalize<Real>, normalize_adjoint<Real>, halve<Real>, halve_adjoint<Real>, blur<Real>, blur_adjoint<Real>},
    };
}

extern const Kernel single_kernel, double_kernel;
const Kernel single_kernel = make_kernel<float>(), double_kernel = make_kernel<double>();

}  // namespace SFCNN_ISA
}  // namespace sfcnn
