"""Vision and diffusion models: torchvision, timm, vit-pytorch, diffusers."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from torch import nn

from ..case import Case, Feed, image
from .diffusion import CASES as DIFFUSION
from .vision_transformers import CASES as TRANSFORMERS


def _torchvision(name: str) -> nn.Module:
    model: nn.Module = import_module("torchvision.models").get_model(name)
    return model


def _backbone_only(name: str) -> nn.Module:
    """A model whose weights would be fetched from the net unless it is told not to."""
    model: nn.Module = import_module("torchvision.models").get_model(name, weights=None, weights_backbone=None)
    return model


def _plain(name: str) -> nn.Module:
    """A model whose constructor draws its weights one by one unless it is told not to."""
    model: nn.Module = import_module("torchvision.models").get_model(name, init_weights=False)
    return model


def _timm(name: str) -> nn.Module:
    model: nn.Module = import_module("timm").create_model(name)
    return model


_TORCHVISION = {
    "alexnet": 224, "convnext_tiny": 224, "densenet121": 224, "efficientnet_b0": 224, "efficientnet_v2_s": 224,
    "maxvit_t": 224, "mnasnet1_0": 224, "mobilenet_v2": 224, "mobilenet_v3_large": 224, "regnet_y_400mf": 224,
    "resnet50": 224, "resnext50_32x4d": 224, "shufflenet_v2_x1_0": 224, "squeezenet1_1": 224, "swin_t": 224,
    "swin_v2_t": 256, "vgg16_bn": 224, "vit_b_16": 224, "wide_resnet50_2": 224,
}  # fmt: skip
_PLAIN = {"inception_v3": 299, "googlenet": 224}
_SEGMENTING = {"fcn_resnet50": 224, "deeplabv3_resnet50": 224, "lraspp_mobilenet_v3_large": 224}
_VIDEO = {"r3d_18": 112, "r2plus1d_18": 112, "s3d": 224, "mvit_v2_s": 224, "swin3d_t": 224}

# A small variant of each family, with the side of its pictures.
_TIMM = {
    "beit_base_patch16_224": 224, "cait_xxs24_224": 224, "coat_tiny": 224, "coatnet_nano_rw_224": 224,
    "convit_tiny": 224, "convmixer_768_32": 224, "convnext_atto": 224, "convnextv2_atto": 224,
    "crossvit_tiny_240": 240, "cspresnet50": 224, "darknet53": 224, "davit_tiny": 224,
    "deit_tiny_distilled_patch16_224": 224, "deit3_small_patch16_224": 224, "densenet121": 224, "dla34": 224,
    "dpn68": 224, "edgenext_xx_small": 224, "efficientformer_l1": 224, "efficientformerv2_s0": 224,
    "efficientnet_b0": 224, "tf_efficientnetv2_b0": 224, "efficientvit_b0": 224, "efficientvit_m0": 224,
    "eva02_tiny_patch14_224": 224, "fasternet_t0": 224, "fastvit_t8": 224, "focalnet_tiny_srf": 224,
    "gcvit_xxtiny": 224, "ghostnet_050": 224, "hgnet_tiny": 224, "hiera_tiny_224": 224, "hrnet_w18_small": 224,
    "inception_next_tiny": 224, "inception_v4": 299, "levit_128s": 224, "mambaout_femto": 224,
    "maxvit_nano_rw_256": 256, "maxxvit_rmlp_nano_rw_256": 256, "poolformer_s12": 224, "caformer_s18": 224,
    "mixer_s16_224": 224, "gmlp_s16_224": 224, "resmlp_12_224": 224, "mobilenetv3_small_050": 224,
    "mobilenetv4_conv_small": 224, "mobilevit_xxs": 256, "mobilevitv2_050": 256, "mvitv2_tiny": 224,
    "naflexvit_base_patch16_gap": 384, "nest_tiny": 224, "nextvit_small": 224, "dm_nfnet_f0": 192, "pit_ti_224": 224,
    "pvt_v2_b0": 224, "regnetx_002": 224, "repvit_m0_9": 224, "res2net50_26w_4s": 224, "resnest14d": 224,
    "resnetv2_50": 224, "rexnet_100": 224, "selecsls42": 224, "seresnet50": 224, "sequencer2d_s": 224,
    "skresnet18": 224, "swin_tiny_patch4_window7_224": 224, "swinv2_tiny_window8_256": 256, "tiny_vit_5m_224": 224,
    "tnt_s_patch16_224": 224, "tresnet_m": 224, "twins_pcpvt_small": 224, "twins_svt_small": 224, "vgg11_bn": 224,
    "visformer_tiny": 224, "vit_tiny_patch16_224": 224, "vit_relpos_small_patch16_224": 224,
    "vit_small_r26_s32_224": 224, "vitamin_small_224": 224, "volo_d1_224": 224, "ese_vovnet19b_dw": 224,
    "xception41": 299, "xcit_nano_12_p16_224": 224,
}  # fmt: skip


def _images(package: str, build: object, sizes: dict[str, int]) -> tuple[Case, ...]:
    assert callable(build)
    return tuple(Case(package, name, partial(build, name), (image(size),)) for name, size in sizes.items())


def _videos() -> tuple[Case, ...]:
    return tuple(
        Case("torchvision", name, partial(_torchvision, name), (Feed(("batch", 3, 16, size, size)),))
        for name, size in _VIDEO.items()
    )


CASES: tuple[Case, ...] = (
    *_images("torchvision", _torchvision, _TORCHVISION),
    *_images("torchvision", _plain, _PLAIN),
    *_images("torchvision", _backbone_only, _SEGMENTING),
    *_videos(),
    *_images("timm", _timm, _TIMM),
    *TRANSFORMERS,
    *DIFFUSION,
)
