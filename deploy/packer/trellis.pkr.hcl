# Images of the appliances on a system that one already has: starts it in QEMU, installs the appliance as `trellis image build`
# does, and leaves a compressed QCOW2. `trellis image build` needs no machine and gives the same bytes every time; this is for
# those whose images must begin with an image of their own.
#
#   packer build -var role=superlink -var base=debian-12.qcow2 -var program=trellis -var ssh_private_key_file=key deploy/packer

variable "role" {
  type        = string
  default     = "supernode"
  description = "The role of machines of this image: superlink or supernode."
}

variable "framework" {
  type        = string
  default     = "none"
  description = "The packages for apps in Python: none, pytorch, tensorflow or sklearn."
}

variable "flower_version" {
  type    = string
  default = "1.42.0"
}

variable "base" {
  type        = string
  description = "A QCOW2 of Debian 12 that lets in root by SSH with the key below."
}

variable "base_checksum" {
  type        = string
  default     = "none"
  description = "The base's checksum, like sha256:0123; with none it is taken as it is."
}

variable "program" {
  type        = string
  description = "A statically linked trellis."
}

variable "ssh_private_key_file" {
  type = string
}

variable "context_disc" {
  type        = string
  default     = ""
  description = "A disc with a context for the base, where it needs one to let us in (`trellis image disc`)."
}

variable "accelerator" {
  type        = string
  default     = "tcg"
  description = "With kvm it is much faster, where the builder has it."
}

variable "output" {
  type    = string
  default = "images"
}

source "qemu" "appliance" {
  iso_url          = var.base
  iso_checksum     = var.base_checksum
  disk_image       = true
  disk_compression = true
  format           = "qcow2"
  accelerator      = var.accelerator
  headless         = true
  memory           = 2048
  net_device       = "virtio-net"
  disk_interface   = "virtio"
  qemuargs         = var.context_disc == "" ? [] : [["-cdrom", var.context_disc]]

  communicator         = "ssh"
  ssh_username         = "root"
  ssh_private_key_file = var.ssh_private_key_file
  ssh_timeout          = "20m"
  shutdown_command     = "systemctl poweroff"

  output_directory = "${var.output}/packer-${var.role}"
  vm_name          = "trellis-${var.role}.qcow2"
}

build {
  sources = ["source.qemu.appliance"]

  provisioner "file" {
    source      = var.program
    destination = "/usr/bin/trellis"
  }

  provisioner "shell" {
    environment_vars = [
      "ROLE=${var.role}",
      "FRAMEWORK=${var.framework}",
      "FLOWER_VERSION=${var.flower_version}",
    ]
    script = "${path.root}/install.sh"
  }
}
